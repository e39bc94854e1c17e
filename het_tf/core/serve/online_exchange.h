// One call's questions to a store, and the answers: checks and fetches of rows, one request a partition, all
// at once. What an answer has no room for is asked when it is here.
//
// What fails is asked again, with pauses, until the deadline: a connection that closed, a server that loads,
// an answer that does not fit. An answer that tells of another life (epoch, incarnation) turns the checks of
// that partition into fetches, since what they would confirm is gone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "het_tf/core/client/backoff.h"
#include "het_tf/core/serve/online_table.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/transport.h"

namespace het::serve {

// One row that is asked for.
struct Question {
  OnlineTable* table;
  Key key;
  uint64_t hash;
  uint32_t life;  // of what is cached; then of the answer
  bool check;     // else fetch
  Clock clock;    // what is cached; then what the store has

  enum Answer { kNone, kNoNews, kRow };
  Answer answer = kNone;
  double when = 0;   // when the request went out that was answered
  size_t value = 0;  // kRow: where it begins in values
};

class OnlineExchange {
 public:
  // `partitions` learns what answers tell. The transport is used until the exchange ends. No answer takes
  // more than `max_read_bytes`, but for one of a single row.
  OnlineExchange(Transport* transport, Partitions* partitions, int64_t bound, size_t max_read_bytes,
                 std::function<double()> clock);

  // Answers all questions. DeadlineExceeded: not all were answered by `until`; FailedPrecondition: the store
  // refuses. Throws std::bad_alloc. Rows that were answered stand in values().
  Status Run(Vector<Question>* questions, double until);
  const Vector<float>& values() const { return values_; }
  // Lives that answers have ended.
  uint64_t emptied() const { return emptied_; }

 private:
  // What a request asks about one table: positions in *questions_.
  struct Section {
    OnlineTable* table;
    std::vector<size_t> checks;
    std::vector<size_t> fetches;
  };
  // The questions to one partition.
  struct Ask {
    uint32_t partition = 0;
    std::vector<size_t> questions;
    size_t answered = 0;            // of these, from the front
    size_t asked = 0;               // those before it are in the request, or answered
    std::vector<Section> sections;  // of the request that is on its way
    uint32_t request_id = 0;        // 0: none is
    double sent_at = 0;
    Backoff backoff;
    bool done = false;
  };

  Status Converse(double until);
  void Send(Ask* ask);
  Status Handle(const Transport::Event& event);
  Status HandleReply(Ask* ask, const Reply& reply);
  bool Fits(const Ask& ask, const Reply& reply) const;
  void TakeRows(const Ask& ask, const Reply& reply);
  void AskAnew(Ask* ask);
  void Failed(Ask* ask, const std::string& reason);
  Status TooLate(double began);

  Transport* const transport_;
  Partitions* const partitions_;
  const int64_t bound_;
  const size_t max_read_bytes_;
  const std::function<double()> clock_;
  Vector<Question>* questions_ = nullptr;
  std::vector<Ask> asks_;
  size_t open_ = 0;
  Vector<float> values_;
  uint64_t emptied_ = 0;
};

}  // namespace het::serve
