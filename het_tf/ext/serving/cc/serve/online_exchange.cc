#include "het_tf/ext/serving/cc/serve/online_exchange.h"

#include <algorithm>
#include <map>
#include <utility>

#include "het_tf/core/client/messages.h"
#include "het_tf/core/wire/layout.h"
#include "het_tf/core/wire/parts.h"

namespace het::serve {
namespace {

constexpr double kPoll = 0.05;  // seconds
constexpr BackoffConfig kPauses = {0.01, 0.2};

const TableReply* Of(const Reply& reply, const OnlineTable& table) {
  const auto t = std::find_if(reply.tables.begin(), reply.tables.end(),
                              [&](const TableReply& one) { return one.table == table.schema().id(); });
  return t == reply.tables.end() ? nullptr : &*t;
}

// The transport's messages address workers; a reader has no updates to lose.
std::string WithoutUpdates(const std::string& reason) { return reason.substr(0, reason.find("; updates")); }

}  // namespace

OnlineExchange::OnlineExchange(Transport* transport, Partitions* partitions, int64_t bound,
                               size_t max_read_bytes, std::function<double()> clock)
    : transport_(transport),
      partitions_(partitions),
      bound_(bound),
      max_read_bytes_(max_read_bytes),
      clock_(std::move(clock)) {}

Status OnlineExchange::Run(Vector<Question>* questions, double until) {
  questions_ = questions;
  const Layout layout(transport_->id(0));
  std::map<uint32_t, size_t> by_partition;
  for (size_t i = 0; i < questions->size(); ++i) {
    const Question& question = (*questions)[i];
    const uint32_t partition = layout.Of(question.table->schema().id(), question.hash);
    const auto [at, added] = by_partition.try_emplace(partition, asks_.size());
    if (added) asks_.emplace_back().partition = partition;
    asks_[at->second].questions.push_back(i);
  }
  open_ = asks_.size();
  const auto give_up = [this] {
    // A late answer would be taken for the next request's, so the connection is reset with the request.
    for (const Ask& ask : asks_) {
      if (ask.request_id != 0) transport_->Reset(ask.partition);
    }
  };
  try {
    const Status status = Converse(until);
    if (!status.ok()) give_up();
    return status;
  } catch (...) {
    give_up();
    throw;
  }
}

Status OnlineExchange::Converse(double until) {
  const double began = clock_();
  const double patience = (until - began) / 4;
  std::vector<Transport::Event> events;
  while (open_ > 0) {
    double now = clock_();
    if (now >= until) return TooLate(began);
    double wait = std::min(kPoll, until - now);
    bool expects = false;
    for (Ask& ask : asks_) {
      if (ask.done) continue;
      if (ask.request_id == 0 && now >= ask.backoff.not_before()) Send(&ask);
      if (ask.request_id != 0 && now - ask.sent_at >= patience &&
          now - transport_->LastMoved(ask.partition) >= patience) {
        // A server that is silent for this long may have died without closing: there is time for another try.
        transport_->Reset(ask.partition);
        Failed(&ask, "no answer for " + Seconds(patience));
      }
      if (ask.request_id != 0) {
        expects = true;
      } else {
        wait = std::min(wait, std::max(1e-4, ask.backoff.not_before() - now));
      }
    }
    events.clear();
    if (expects) {
      transport_->Poll(wait, &events);
    } else {
      transport_->Sleep(wait);
    }
    for (const Transport::Event& event : events) HET_RETURN_IF_ERROR(Handle(event));
  }
  return Status();
}

void OnlineExchange::Send(Ask* ask) {
  ask->sections.clear();
  size_t bytes = 0;
  for (ask->asked = ask->answered; ask->asked < ask->questions.size(); ++ask->asked) {
    const size_t i = ask->questions[ask->asked];
    Question& question = (*questions_)[i];
    bytes += MostAnswerBytes(RowFormat::kFloat32, 0, question.table->schema().row_floats());
    if (bytes > max_read_bytes_ && ask->asked > ask->answered) break;
    // The answer belongs to the life before the request, read before any epoch: if another call ends that
    // life meanwhile, this answer is discarded too.
    const uint32_t life = question.table->life(ask->partition);
    question.check = question.check && question.life == life;
    question.life = life;
    auto section = std::find_if(ask->sections.begin(), ask->sections.end(),
                                [&](const Section& one) { return one.table == question.table; });
    if (section == ask->sections.end()) {
      section = ask->sections.insert(section, Section{question.table, {}, {}});
    }
    (question.check ? section->checks : section->fetches).push_back(i);
  }
  static std::atomic<uint32_t> ids{0};
  while ((ask->request_id = ++ids) == 0) {
  }
  Request request;
  request.request_id = ask->request_id;
  request.partition = transport_->id(ask->partition);
  for (const Section& section : ask->sections) {
    TableRequest& t = request.tables.emplace_back();
    t.table = section.table->schema().id();
    t.epoch = section.table->epoch(ask->partition);
    t.bound = bound_;
    for (size_t i : section.checks) {
      t.check_keys.push_back((*questions_)[i].key);
      t.check_clocks.push_back((*questions_)[i].clock);
    }
    for (size_t i : section.fetches) t.fetch_keys.push_back((*questions_)[i].key);
  }
  OutFrame frame = EncodeFrame({&request, 1});
  ask->sent_at = clock_();
  transport_->Send(std::move(frame));
}

Status OnlineExchange::Handle(const Transport::Event& event) {
  const auto ask = std::find_if(asks_.begin(), asks_.end(), [&](const Ask& one) {
    return one.partition == event.partition && one.request_id != 0;
  });
  if (ask == asks_.end()) return Status();  // the request was given up
  switch (event.kind) {
    case Transport::Event::kReply: {
      Reply reply;
      if (!Decode(Span<const uint8_t>(event.bytes.data(), event.bytes.size()), &reply).ok()) {
        transport_->Reset(ask->partition);
        Failed(&*ask, "a damaged reply");
        return Status();
      }
      if (reply.request_id != ask->request_id) return Status();  // late, or twice
      return HandleReply(&*ask, reply);
    }
    case Transport::Event::kRejected:
      return FailedPrecondition("the parameter server refuses a lookup: " + WithoutUpdates(event.reason));
    case Transport::Event::kGone:  // like a missed deadline, so that old rows may be served
      return Status(Code::kDeadlineExceeded,
                    "the parameter server has no answer: " + WithoutUpdates(event.reason));
    case Transport::Event::kClosed:
    case Transport::Event::kRefused:
      Failed(&*ask, event.reason);
      return Status();
    case Transport::Event::kReplicas:
    case Transport::Event::kUncounted:
      return Status();  // events of other kinds
  }
  return Status();
}

Status OnlineExchange::HandleReply(Ask* ask, const Reply& reply) {
  const bool reborn = reply.inc != 0 && partitions_->Saw(ask->partition, reply.inc);
  emptied_ += reborn;
  switch (reply.status) {
    case FrameStatus::kOk: {
      const bool checked = std::any_of(ask->sections.begin(), ask->sections.end(),
                                       [](const Section& section) { return !section.checks.empty(); });
      // The checked clocks belong to the previous life.
      if (reborn && checked) {
        AskAnew(ask);
      } else if (!Fits(*ask, reply)) {
        transport_->Reset(ask->partition);
        Failed(ask, "a reply that does not fit its request");
      } else {
        TakeRows(*ask, reply);
        ask->request_id = 0;
        ask->answered = ask->asked;
        ask->done = ask->answered == ask->questions.size();
        open_ -= ask->done;
      }
      return Status();
    }
    case FrameStatus::kEpoch:
      for (const Section& section : ask->sections) {
        const TableReply* t = Of(reply, *section.table);
        if (t != nullptr) emptied_ += section.table->Saw(ask->partition, t->epoch);
      }
      AskAnew(ask);
      return Status();
    case FrameStatus::kOutOfMemory:
      Failed(ask, kStoreOutOfMemory);
      return Status();
    case FrameStatus::kNoTable: {
      std::string names;
      for (const Section& section : ask->sections) {
        names += (names.empty() ? "'" : ", '") + section.table->schema().spec().name + "'";
      }
      ask->request_id = 0;
      return FailedPrecondition("a table of " + names + " is not at the parameter server any more (" +
                                reply.message + "); export the model again, or restore the table there");
    }
    case FrameStatus::kElsewhere:
    case FrameStatus::kBusy:
      Failed(ask, reply.message);
      return Status();
    case FrameStatus::kGap:
    case FrameStatus::kWrongPartition:
    case FrameStatus::kBadFrame:
      break;
  }
  ask->request_id = 0;
  return FailedPrecondition("partition " + std::to_string(ask->partition) +
                            " of the parameter server refuses a lookup: " + reply.message +
                            "; load the model again, and look whether both sides have one version of het_tf");
}

bool OnlineExchange::Fits(const Ask& ask, const Reply& reply) const {
  for (const Section& section : ask.sections) {
    const TableReply* t = Of(reply, *section.table);
    if (t == nullptr || t->fetched_clocks.size() != section.fetches.size() ||
        t->refreshed_clocks.size() != t->refreshed.size()) {
      return false;
    }
    for (uint32_t position : t->refreshed) {
      if (position >= section.checks.size()) return false;
    }
    const size_t rows = t->KnownRows();
    if (rows > 0 && t->row_floats < section.table->schema().dim()) return false;
    if (t->rows.size() != rows * t->row_floats) return false;
  }
  return true;
}

void OnlineExchange::TakeRows(const Ask& ask, const Reply& reply) {
  for (const Section& section : ask.sections) {
    const TableReply& t = *Of(reply, *section.table);
    const TableSchema& schema = section.table->schema();
    const float* row = t.rows.data();
    const auto answer = [&](size_t i, Clock clock) {
      Question& question = (*questions_)[i];
      question.answer = Question::kRow;
      question.clock = clock;
      question.when = ask.sent_at;
      question.value = values_.size();
      values_.resize(values_.size() + schema.dim());
      if (clock == 0) {  // the store does not have the row
        schema.InitValue(question.key, values_.data() + question.value);
      } else {
        std::copy_n(row, schema.dim(), values_.data() + question.value);
        row += t.row_floats;
      }
    };
    for (size_t i : section.checks) {
      (*questions_)[i].answer = Question::kNoNews;
      (*questions_)[i].when = ask.sent_at;
    }
    for (size_t i = 0; i < t.refreshed.size(); ++i) {
      answer(section.checks[t.refreshed[i]], t.refreshed_clocks[i]);
    }
    for (size_t i = 0; i < section.fetches.size(); ++i) answer(section.fetches[i], t.fetched_clocks[i]);
  }
}

void OnlineExchange::AskAnew(Ask* ask) {
  ask->request_id = 0;
  for (size_t i : ask->questions) (*questions_)[i].check = false;
}

void OnlineExchange::Failed(Ask* ask, const std::string& reason) {
  ask->request_id = 0;
  ask->backoff.Failed(kPauses, clock_(), WithoutUpdates(reason), /*jitter=*/1);
}

Status OnlineExchange::TooLate(double began) {
  // Partitions of one server usually fail for the same reason.
  std::map<std::pair<std::string, std::string>, std::vector<uint32_t>> all;
  for (const Ask& ask : asks_) {
    if (ask.done) continue;
    const std::string where = transport_->Where(ask.partition);
    const std::string& reason = ask.backoff.reason();
    const bool known = where.empty() || reason.find(where) != std::string::npos;
    all[{reason.empty() ? "no answer" : reason, known ? "" : " at " + where}].push_back(ask.partition);
  }
  std::string text;
  for (const auto& [what, partitions] : all) {
    text += " " + PartitionNames(partitions) + what.second + ": " + what.first + ";";
    if (text.size() > 600) break;
  }
  return Status(Code::kDeadlineExceeded,
                "a lookup waited for " + Seconds(clock_() - began) + " for the parameter server;" + text +
                    " look at the servers, or export with a longer deadline, or with stale_ok=True");
}

}  // namespace het::serve
