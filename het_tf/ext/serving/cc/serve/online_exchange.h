// One call's requests to a store, and the answers: checks and fetches of rows, one request a partition, all
// at once. Questions that did not fit in an answer go into the next request.
//
// Failed requests are repeated, with pauses, until the deadline: a closed connection, a server that is
// loading, an answer that does not fit. When an answer carries a new epoch or incarnation, the checks of that
// partition become fetches, since the rows that they would confirm are invalid.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "het_tf/core/client/backoff.h"
#include "het_tf/core/wire/reply.h"
#include "het_tf/core/wire/transport.h"
#include "het_tf/ext/serving/cc/serve/online_table.h"

namespace het::serve {

// One row to check or fetch.
struct Question {
  OnlineTable* table;
  Key key;
  uint64_t hash;
  uint32_t life;  // of the cached row; then of the answer
  bool check;     // else fetch
  Clock clock;    // of the cached row; then of the store's

  enum Answer { kNone, kNoNews, kRow };
  Answer answer = kNone;
  double when = 0;   // when the answered request was sent
  size_t value = 0;  // kRow: where it begins in values
};

class OnlineExchange {
 public:
  // `partitions` learns incarnations from answers. The transport must outlive the exchange. An answer takes
  // at most `max_read_bytes`, or one row.
  OnlineExchange(Transport* transport, Partitions* partitions, int64_t bound, size_t max_read_bytes,
                 std::function<double()> clock);

  // Answers all questions; the rows are in values(). DeadlineExceeded: some had no answer by `until`.
  // FailedPrecondition: the store refuses. Throws std::bad_alloc.
  Status Run(Vector<Question>* questions, double until);
  const Vector<float>& values() const { return values_; }
  // How often an answer ended a life.
  uint64_t emptied() const { return emptied_; }

 private:
  // The part of a request about one table: positions in *questions_.
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
    size_t asked = 0;               // questions before it are in the request or answered
    std::vector<Section> sections;  // of the request in flight
    uint32_t request_id = 0;        // of the request in flight; 0: none
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
