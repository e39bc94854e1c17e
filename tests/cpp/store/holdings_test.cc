// What a partition believes its clients hold (core/store/holdings.h): each rule by itself, and then a small
// world in which answers are lost, left unread, asked twice and overtaken, against clients that know what
// they hold.
#include "het_tf/core/store/holdings.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "het_tf/core/store/shard.h"
#include "tests/cpp/testing/random.h"

namespace het::testing {
namespace {

constexpr uint64_t kTable = 7;
constexpr int64_t kBound = 3;
constexpr ClientId kAnn{1, 1};
constexpr ClientId kBob{1, 2};

class HoldingsTest : public ::testing::Test {
 protected:
  using Told = std::vector<std::pair<Key, Clock>>;

  // A request of a client that acknowledges `ack`, fetches keys at clock g_[key], and lets others go.
  struct Answer {
    uint32_t number;
    bool reset;
    Told told;
  };
  Answer Ask(ClientId client, uint32_t ack, const std::vector<Key>& fetch = {},
             const std::vector<Key>& drop = {}) {
    return AskAs(client, ++request_, ack, fetch, drop);
  }
  Answer AskAs(ClientId client, uint32_t request, uint32_t ack, const std::vector<Key>& fetch = {},
               const std::vector<Key>& drop = {}) {
    Holdings::Turn turn = holdings_.Begin(client, request, ack, {{kTable, epoch_, bound_, fetch.size()}});
    turn.Drop(kTable, Vector<Key>(drop.begin(), drop.end()));
    for (Key key : fetch) turn.Hold(kTable, key, g_[key]);
    Answer answer{turn.number(), turn.reset(), {}};
    turn.Tell(kTable, [&](Key key) {
      answer.told.push_back({key, g_[key]});
      return g_[key];
    });
    return answer;
  }
  void Push(ClientId from, Key key, uint32_t ticks) {
    g_[key] += ticks;
    holdings_.Pushed(from, kTable, {key}, {ticks}, [&](size_t) { return g_[key]; });
  }

  Holdings holdings_;
  std::map<Key, Clock> g_;
  uint64_t epoch_ = 1;
  int64_t bound_ = kBound;
  uint32_t request_ = 0;
};

TEST_F(HoldingsTest, ARowIsToldOnceItHasMovedPastTheBound) {
  const Answer first = Ask(kAnn, 0, {1, 2});
  EXPECT_TRUE(first.reset);
  EXPECT_NE(first.number, 0u);
  Push(kBob, 1, kBound);
  const Answer within = Ask(kAnn, first.number);
  EXPECT_FALSE(within.reset);
  EXPECT_EQ(within.told, Told());
  Push(kBob, 1, 1);
  const Answer moved = Ask(kAnn, within.number);
  EXPECT_EQ(moved.told, (Told{{1, kBound + 1}}));
  EXPECT_EQ(Ask(kAnn, moved.number).told, Told()) << "its base is what was told";
  Push(kBob, 1, kBound);
  EXPECT_EQ(Ask(kAnn, moved.number + 1).told, Told());
}

TEST_F(HoldingsTest, AnAnswerThatWasNotTakenInIsTold) {
  const uint32_t ack = Ask(kAnn, 0, {1, 2}).number;
  Push(kBob, 1, kBound + 1);
  EXPECT_EQ(Ask(kAnn, ack).told.size(), 1u);
  Push(kBob, 2, kBound + 1);
  EXPECT_EQ(Ask(kAnn, ack).told.size(), 2u) << "the first one again";
  const Answer third = Ask(kAnn, ack);
  EXPECT_EQ(third.told.size(), 2u);
  EXPECT_EQ(Ask(kAnn, third.number).told.size(), 0u);
}

TEST_F(HoldingsTest, WhatMovesAgainBetweenAnswerAndAcknowledgementIsToldAgain) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kBob, 1, kBound + 1);
  const Answer told = Ask(kAnn, ack);
  Push(kBob, 1, kBound + 1);
  EXPECT_EQ(Ask(kAnn, told.number).told, (Told{{1, 2 * kBound + 2}}));
}

TEST_F(HoldingsTest, OwnPushesRaiseTheBase) {
  uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kAnn, 1, 100);
  Push(kBob, 1, kBound);
  Answer answer = Ask(kAnn, ack);
  EXPECT_EQ(answer.told, Told());
  Push(kBob, 1, 1);
  answer = Ask(kAnn, answer.number);
  EXPECT_EQ(answer.told.size(), 1u);
  Push(kAnn, 1, 100);  // between the answer and its acknowledgement
  Push(kBob, 1, kBound);
  EXPECT_EQ(Ask(kAnn, answer.number).told, Told());
}

TEST_F(HoldingsTest, WhatWasLetGoIsNotTold) {
  const Answer first = Ask(kAnn, 0, {1, 2});
  const Answer second = Ask(kAnn, first.number, {}, {1, 5});
  EXPECT_EQ(holdings_.held(), 1u);
  Push(kBob, 1, 100);
  Push(kBob, 2, 100);
  EXPECT_EQ(Ask(kAnn, second.number, {}, {2}).told, Told()) << "let go while it was to be told";
  EXPECT_EQ(holdings_.held(), 0u);
}

// The client fetches a row twice at once, lets the first copy go, and says so before the second has come.
TEST_F(HoldingsTest, LettingGoDoesNotReachWhatIsOnItsWay) {
  const uint32_t ack = Ask(kAnn, 0, {9}).number;
  const uint32_t first = Ask(kAnn, ack, {1}).number;
  const uint32_t second = Ask(kAnn, ack, {1}).number;
  Ask(kAnn, first, {}, {1});
  Push(kBob, 1, 100);
  EXPECT_EQ(Ask(kAnn, second).told.size(), 1u);
}

// The client has the row at an old clock; an answer with a newer one is lost.
TEST_F(HoldingsTest, AFetchThatIsLostRaisesNothing) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kBob, 1, kBound);
  Ask(kAnn, ack, {1});
  Push(kBob, 1, 1);
  EXPECT_EQ(Ask(kAnn, ack).told.size(), 1u);
}

TEST_F(HoldingsTest, AFetchThatIsLostDoesNotStandForTelling) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kBob, 1, 100);
  EXPECT_EQ(Ask(kAnn, ack, {1}).told, Told()) << "the answer has the row anyway";
  EXPECT_EQ(Ask(kAnn, ack).told.size(), 1u);
}

TEST_F(HoldingsTest, AnAcknowledgementOfSomethingElseResets) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  EXPECT_FALSE(Ask(kAnn, ack).reset);
  EXPECT_TRUE(Ask(kAnn, 0).reset);
  EXPECT_EQ(holdings_.held(), 0u);
  EXPECT_TRUE(Ask(kAnn, ack).reset) << "of before the reset";
  EXPECT_TRUE(Ask(kAnn, ack + 1000).reset);
  EXPECT_TRUE(Ask(kBob, 0).reset);
  EXPECT_EQ(holdings_.resets(), 5u);
}

TEST_F(HoldingsTest, NumbersAreNeverUsedTwice) {
  std::set<uint32_t> numbers;
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(numbers.insert(Ask(i % 2 == 0 ? kAnn : kBob, 0).number).second);
    if (i % 5 == 0) holdings_.Clear();
  }
}

TEST_F(HoldingsTest, AnotherBoundOrEpochResets) {
  uint32_t ack = Ask(kAnn, 0, {1}).number;
  bound_ = 2;
  Answer answer = Ask(kAnn, ack, {1});
  EXPECT_TRUE(answer.reset);
  epoch_ = 2;
  answer = Ask(kAnn, answer.number);
  EXPECT_TRUE(answer.reset);
  EXPECT_EQ(holdings_.held(), 0u);
}

TEST_F(HoldingsTest, ARequestFromAConnectionThatWasGivenUpChangesNothing) {
  const uint32_t old = ++request_;
  const uint32_t ack = Ask(kAnn, 0, {1, 2}).number;
  const Answer ghost = AskAs(kAnn, old, ack, {3}, {1});
  EXPECT_EQ(ghost.number, 0u);
  EXPECT_TRUE(ghost.reset);
  EXPECT_EQ(holdings_.held(), 2u);
  EXPECT_FALSE(Ask(kAnn, ack).reset);
  EXPECT_EQ(AskAs(kAnn, request_, ack).number, 0u) << "a copy";
  EXPECT_FALSE(Ask(kAnn, ack).reset);
}

TEST_F(HoldingsTest, RequestNumbersMayWrap) {
  request_ = UINT32_MAX - 1;
  uint32_t ack = 0;
  for (int i = 0; i < 5; ++i) {
    const Answer answer = Ask(kAnn, ack, {i});
    EXPECT_EQ(answer.reset, i == 0);
    ack = answer.number;
  }
}

TEST_F(HoldingsTest, ARowThatIsRemovedIsTold) {
  g_ = {{1, 5}, {2, 0}};
  const uint32_t ack = Ask(kAnn, 0, {1, 2}).number;
  g_[1] = 0;
  holdings_.Removed(kTable, 1);
  holdings_.Removed(kTable, 3);
  const Answer answer = Ask(kAnn, ack);
  EXPECT_EQ(answer.told, (Told{{1, 0}}));
  Push(kBob, 1, kBound);
  EXPECT_EQ(Ask(kAnn, answer.number).told, Told());
}

TEST_F(HoldingsTest, BeyondTheLimitTheSilentClientIsForgotten) {
  holdings_.set_limit(4);
  const uint32_t ann = Ask(kAnn, 0, {1, 2}).number;
  const uint32_t bob = Ask(kBob, 0, {1, 2}).number;
  EXPECT_EQ(holdings_.held(), 4u);
  const Answer more = Ask(kBob, bob, {3});
  EXPECT_FALSE(more.reset);
  EXPECT_EQ(holdings_.held(), 3u);
  EXPECT_EQ(holdings_.clients(), 1u);
  const Answer back = Ask(kAnn, ann, {1});
  EXPECT_TRUE(back.reset);
  EXPECT_EQ(holdings_.held(), 4u);
}

TEST_F(HoldingsTest, OneClientBeyondTheLimitBeginsAnew) {
  holdings_.set_limit(4);
  Answer answer = Ask(kAnn, 0, {1, 2, 3});
  answer = Ask(kAnn, answer.number, {4, 5});
  EXPECT_TRUE(answer.reset);
  EXPECT_EQ(holdings_.held(), 2u);
  const Answer other = Ask(kBob, 0, {1});
  answer = Ask(kAnn, answer.number, {1, 2, 3, 4, 5});
  EXPECT_TRUE(answer.reset);
  EXPECT_EQ(answer.number, 0u) << "that many are never held";
  EXPECT_FALSE(Ask(kBob, other.number).reset) << "and nobody pays for it";
  EXPECT_EQ(holdings_.held(), 1u);
}

TEST_F(HoldingsTest, ClientsThatLeftAreForgotten) {
  Ask(kAnn, 0, {1});
  uint32_t ack = 0;
  for (uint32_t i = 0; i < Holdings::kIdleAnswers + 2000; ++i) ack = Ask(kBob, ack).number;
  EXPECT_EQ(holdings_.clients(), 1u);
}

// The look for clients that left comes with the very request of one that was silent for as long.
TEST_F(HoldingsTest, AClientThatIsBackAfterALongSilenceIsHeldOrReset) {
  const uint32_t ann = Ask(kAnn, 0, {1}).number;
  uint32_t bob = 0;
  while (bob + 1 < 65 * 1024) bob = Ask(kBob, bob).number;
  ASSERT_GT(bob - ann, Holdings::kIdleAnswers);
  const Answer back = Ask(kAnn, ann);
  Push(kBob, 1, kBound + 1);
  if (back.reset) return;
  EXPECT_EQ(Ask(kAnn, back.number).told, (Told{{1, kBound + 1}}));
}

TEST_F(HoldingsTest, APushThatFindsNoRowMovesNothing) {
  Push(kBob, 1, 2);
  const uint32_t first = Ask(kAnn, 0, {1}).number;
  holdings_.Pushed(kBob, kTable, {1}, {0}, [](size_t) { return Clock{0}; });
  EXPECT_EQ(Ask(kAnn, first).told, Told());
}

TEST_F(HoldingsTest, GivingUpResets) {
  const uint32_t ack = Ask(kAnn, 0, {1}).number;
  Push(kBob, 1, 100);
  Holdings::Turn turn = holdings_.Begin(kAnn, ++request_, ack, {{kTable, epoch_, bound_, 0}});
  EXPECT_EQ(turn.Due(kTable), 1u);
  turn.GiveUp();
  EXPECT_EQ(turn.number(), 0u);
  EXPECT_TRUE(turn.reset());
  EXPECT_EQ(holdings_.held(), 0u);
  EXPECT_TRUE(Ask(kAnn, ack).reset);
}

TEST_F(HoldingsTest, MemoryIsCounted) {
  const size_t before = holdings_.bytes();
  std::vector<Key> keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  const size_t held = AllocatedBytes();
  Ask(kAnn, 0, keys);
  EXPECT_GE(holdings_.bytes(), before + keys.size() * 24);
  EXPECT_NEAR(static_cast<double>(holdings_.bytes() - before), static_cast<double>(AllocatedBytes() - held),
              600.0);
  EXPECT_LT(holdings_.bytes() - before, keys.size() * 60);
  holdings_.Clear();
  EXPECT_EQ(holdings_.bytes(), 0u);
}

// A push is never refused for what would have to be noted: the client that it is about is forgotten.
TEST_F(HoldingsTest, OutOfMemoryForgets) {
  std::vector<Key> keys(100);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  const uint32_t ack = Ask(kAnn, 0, keys).number;
  const Vector<Key> pushed = {5};
  const Vector<uint32_t> ticks = {100};
  SetAllocLimit(AllocatedBytes());
  holdings_.Pushed(kBob, kTable, pushed, ticks, [&](size_t) { return 100; });
  SetAllocLimit(SIZE_MAX);
  EXPECT_EQ(holdings_.clients(), 0u);
  EXPECT_TRUE(Ask(kAnn, ack).reset);
}

// --- a small world

// A server with clocks and no rows, and clients that are what core/client/client.h is to holdings: they say
// what they hold, take answers in whole or not at all, and lose connections.
class SmallWorld {
 public:
  SmallWorld(uint64_t seed, int clients) : random_(seed) {
    holdings_.set_limit(random_.Pick<size_t>({6, 20, 1000}));
    bound_ = random_.Pick<int64_t>({0, 1, 3, 10});
    for (int c = 0; c < clients; ++c) {
      clients_.emplace_back();
      clients_.back().id = {seed, static_cast<uint64_t>(c)};
    }
  }

  std::string Run(int steps) {
    for (int i = 0; i < steps && error_.empty(); ++i) Step();
    return error_;
  }
  uint64_t trusted() const { return trusted_; }
  uint64_t told() const { return holdings_.told(); }

 private:
  struct Line {
    Clock base;
    bool held;
    int pins;
  };
  struct Request {
    uint32_t id = 0;
    uint32_t ack = 0;
    bool tell = false;
    uint64_t push = 0;  // its number; 0: none
    std::map<Key, uint32_t> ticks;
    std::vector<Key> dropped;
    std::map<Key, Clock> checks;
    std::set<Key> fetches;
    std::set<Key> trusted;
  };
  struct Answer {
    Request request;
    uint32_t number = 0;
    bool reset = false;
    uint64_t applied = 0;
    std::map<Key, Clock> rows;  // told, refreshed, fetched
    std::set<Key> told;
    std::map<Key, Clock> server;  // as it was
  };
  struct Client {
    ClientId id;
    uint32_t told = 0;
    uint32_t next_request = 1;
    uint64_t pushes = 0;   // made
    uint64_t applied = 0;  // at the server
    std::map<uint64_t, std::map<Key, uint32_t>> frames;
    std::map<Key, Line> lines;
    std::set<Key> let_go;
    std::deque<Request> out;
    std::deque<Answer> in;
    std::deque<Request> ghosts;
  };

  Clock At(Key key) {
    const auto row = rows_.find(key);
    return row == rows_.end() ? 0 : row->second;
  }
  bool Stale(Clock g, Clock base) const { return g < base || g - base > bound_; }
  Clock OwnAfter(const Client& c, Key key, uint64_t applied) {
    Clock sum = 0;
    for (auto frame = c.frames.upper_bound(applied); frame != c.frames.end(); ++frame) {
      const auto at = frame->second.find(key);
      if (at != frame->second.end()) sum += at->second;
    }
    return sum;
  }

  void Send(Client* c, Request request) {
    request.id = c->next_request++;
    if (request.tell) {
      request.ack = c->told;
      for (Key key : c->let_go) {
        const auto line = c->lines.find(key);
        if (line == c->lines.end() || !line->second.held) request.dropped.push_back(key);
      }
      c->let_go.clear();
      // What was trusted when the read began need not be any more.
      for (auto key = request.trusted.begin(); key != request.trusted.end();) {
        const Line& line = c->lines.at(*key);
        if (!line.held) request.checks[*key] = line.base;
        key = line.held ? std::next(key) : request.trusted.erase(key);
      }
    }
    c->out.push_back(std::move(request));
  }
  void Read(Client* c, const std::set<Key>& keys) {
    Request request;
    request.tell = true;
    for (Key key : keys) {
      const auto line = c->lines.find(key);
      if (line == c->lines.end()) {
        request.fetches.insert(key);
        continue;
      }
      ++line->second.pins;
      if (line->second.held) {
        request.trusted.insert(key);
      } else {
        request.checks[key] = line->second.base;
      }
    }
    Send(c, std::move(request));
  }
  void Push(Client* c, const std::set<Key>& keys) {
    Request request;
    request.push = ++c->pushes;
    for (Key key : keys) {
      const auto ticks = static_cast<uint32_t>(1 + random_.Below(3));
      request.ticks[key] = ticks;
      const auto line = c->lines.find(key);
      if (line != c->lines.end()) line->second.base += ticks;
    }
    c->frames[request.push] = request.ticks;
    Send(c, std::move(request));
  }
  void LetGo(Client* c, Key key) {
    const auto line = c->lines.find(key);
    if (line == c->lines.end() || line->second.pins > 0) return;
    if (line->second.held) c->let_go.insert(key);
    c->lines.erase(line);
  }

  Answer Serve(Client* c, const Request& request) {
    Answer answer;
    answer.request = request;
    if (request.push == c->applied + 1) {
      ++c->applied;
      Vector<Key> keys;
      Vector<uint32_t> ticks;
      for (auto [key, n] : request.ticks) {
        if (rows_.count(key) == 0) rows_[key] = floor_ == 0 ? 0 : floor_ + Shard::kBirthGap;
        rows_[key] += n;
        keys.push_back(key);
        ticks.push_back(n);
      }
      holdings_.Pushed(c->id, kTable, keys, ticks, [&](size_t i) { return rows_[keys[i]]; });
    }
    answer.applied = c->applied;
    if (request.tell) {
      Holdings::Turn turn =
          holdings_.Begin(c->id, request.id, request.ack,
                          {{kTable, 1, bound_, request.checks.size() + request.fetches.size()}});
      turn.Drop(kTable, Vector<Key>(request.dropped.begin(), request.dropped.end()));
      for (auto [key, clock] : request.checks) {
        if (Stale(At(key), clock)) answer.rows[key] = At(key);
        turn.Hold(kTable, key, Stale(At(key), clock) ? At(key) : clock);
      }
      for (Key key : request.fetches) {
        answer.rows[key] = At(key);
        turn.Hold(kTable, key, At(key));
      }
      turn.Tell(kTable, [&](Key key) {
        answer.told.insert(key);
        return answer.rows[key] = At(key);
      });
      answer.number = turn.number();
      answer.reset = turn.reset();
      if (holdings_.held() > holdings_.limit()) error_ = "more is held than the limit allows";
    }
    answer.server = rows_;
    return answer;
  }
  void Unpin(Client* c, const Request& request) {
    auto unpin = [c](Key key) {
      const auto line = c->lines.find(key);
      if (line != c->lines.end() && line->second.pins > 0) --line->second.pins;
    };
    for (Key key : request.trusted) unpin(key);
    for (auto& [key, clock] : request.checks) unpin(key);
  }
  void Receive(Client* c, const Answer& answer) {
    const Request& request = answer.request;
    for (auto frame = c->frames.begin(); frame != c->frames.end() && frame->first <= answer.applied;)
      frame = c->frames.erase(frame);
    if (!request.tell) return;
    if (random_.Chance(0.1)) return Unpin(c, request);  // the read was given up
    if (answer.reset) {
      for (auto& [key, line] : c->lines) line.held = false;
    }
    auto install = [&](Key key, Clock clock) {
      c->lines[key].base = clock + OwnAfter(*c, key, answer.applied);
    };
    for (auto& [key, clock] : answer.rows) {
      const auto line = c->lines.find(key);
      if (line == c->lines.end() && request.fetches.count(key) == 0) {
        c->let_go.insert(key);  // told in vain
      } else {
        install(key, clock);
      }
    }
    if (answer.number != 0) {
      for (auto& [key, clock] : request.checks) c->lines.at(key).held = true;
      for (Key key : request.fetches) c->lines.at(key).held = true;
      c->told = answer.number;
    }
    std::set<Key> again;
    for (Key key : request.trusted) {
      const Line& line = c->lines.at(key);
      if (!line.held) {
        again.insert(key);
        continue;
      }
      ++trusted_;
      const auto row = answer.server.find(key);
      const Clock g = row == answer.server.end() ? 0 : row->second;
      const Clock base = line.base - OwnAfter(*c, key, answer.applied);
      if (Stale(g, base)) {
        error_ = "key " + std::to_string(key) + " is held at " + std::to_string(base) +
                 ", the server's was " + std::to_string(g) + ", bound " + std::to_string(bound_);
      }
    }
    Unpin(c, request);
    for (Key key : request.fetches) {
      if (random_.Chance(0.2)) LetGo(c, key);
    }
    if (!again.empty()) Read(c, again);
  }
  void Cut(Client* c) {
    for (Answer& answer : c->in) c->out.push_front(answer.request);
    std::deque<Request> lost;
    lost.swap(c->out);
    c->in.clear();
    std::sort(lost.begin(), lost.end(), [](const Request& a, const Request& b) { return a.id < b.id; });
    for (const Request& request : lost) {
      if (random_.Chance(0.5)) c->ghosts.push_back(request);
    }
    // Pushes that were not applied first, in their order; then the reads, with new numbers.
    for (auto frame = c->frames.upper_bound(c->applied); frame != c->frames.end(); ++frame) {
      Request push;
      push.push = frame->first;
      push.ticks = frame->second;
      Send(c, std::move(push));
    }
    for (Request& request : lost) {
      if (!request.tell) continue;
      Request again;
      again.tell = true;
      again.fetches = request.fetches;
      again.trusted = request.trusted;
      for (auto& [key, clock] : request.checks) again.checks[key] = c->lines.at(key).base;
      Send(c, std::move(again));
    }
  }

  void Step() {
    Client* c = &clients_[random_.Below(clients_.size())];
    std::set<Key> keys;
    for (uint64_t n = 1 + random_.Below(4); n > 0; --n) keys.insert(random_.Between(0, 9));
    const uint64_t what = random_.Below(100);
    if (what < 20) {
      Read(c, keys);
    } else if (what < 35) {
      Push(c, keys);
    } else if (what < 60) {
      if (c->out.empty()) return;
      c->in.push_back(Serve(c, c->out.front()));
      if (random_.Chance(0.05)) Serve(c, c->out.front());
      c->out.pop_front();
    } else if (what < 85) {
      if (c->in.empty()) return;
      const Answer answer = std::move(c->in.front());
      c->in.pop_front();
      Receive(c, answer);
    } else if (what < 92) {
      for (Key key : keys) LetGo(c, key);
    } else if (what < 94) {
      Cut(c);
    } else if (what < 97) {
      if (c->ghosts.empty()) return;
      Serve(c, c->ghosts.front());
      c->ghosts.pop_front();
    } else if (what < 99) {
      const Key key = *keys.begin();
      if (rows_.count(key) == 0) return;
      floor_ = std::max(floor_, rows_[key]);
      rows_.erase(key);
      holdings_.Removed(kTable, key);
    } else if (random_.Chance(0.2)) {
      holdings_.Clear();
    }
  }

  Random random_;
  Holdings holdings_;
  int64_t bound_ = 0;
  Clock floor_ = 0;
  std::map<Key, Clock> rows_;
  std::vector<Client> clients_;
  uint64_t trusted_ = 0;
  std::string error_;
};

TEST(HoldingsWorld, WhatIsTrustedIsWithinTheBound) {
  uint64_t trusted = 0;
  uint64_t told = 0;
  for (uint64_t seed = 1; seed <= Scaled(2000); ++seed) {
    SmallWorld world(seed, 1 + static_cast<int>(seed % 3));
    ASSERT_EQ(world.Run(400), "") << "seed " << seed;
    trusted += world.trusted();
    told += world.told();
  }
  EXPECT_GT(trusted, 100u * Scaled(100));
  EXPECT_GT(told, 10u * Scaled(100));
}

}  // namespace
}  // namespace het::testing
