// Engine: all tables of one namespace in this process, and the two operations of a step. The
// kernels of TensorFlow's ops and the functions of capi/ call it.
//
// 1. Tables. TableCatalog knows them by name. How a table is served is chosen when it is created:
//    DirectBackend (in place, in the embedded store), CachedBackend (behind a cache with per-row
//    clocks, before the embedded store or servers) or DeviceBackend (the same, with the cache in
//    the memory of a device). Tables of the last kind and of the other two do not go into one call.
//
// 2. Steps. Lookup sorts a batch's ids (plan/batch_plan.h), asks each backend for its rows, and
//    with a token remembers the plan in StepStore; Apply takes it from there, sums gradients per
//    unique key (plan/step.h), and lets each backend tick. StepStore has one list of the newest
//    eight steps: an older one loses its plan, and still works. A cache on the host knows from the
//    numbers of its lookups which rows are in use (cache/lookup_numbers.h).
//
//    Example: table 0 has dim 2; feature 0 has ids [7, 9, 7], feature 1 has ids [9, -1] and
//    padding_id -1.
//      Lookup  out[0] = [row 7, row 9, row 7]   float[3][2]
//              out[1] = [row 9, 0]              float[2][2]
//              *token = 1
//      Apply   gradients[0] float[3][2], gradients[1] float[2][2], token 1, learning_rates[0] = 0.1
//              row 7 <- optimizer(row 7, gradients[0][0] + gradients[0][2])              one tick
//              row 9 <- optimizer(row 9, gradients[0][1] + gradients[1][0])              one tick
//
// 3. The client. ClientDriver owns it, for cached and device tables: one call uses it at a time;
//    its thread moves pushes to servers on between calls.
//
//    Planned steps. Plan sorts a batch's ids before its lookup comes, on the pipeline's thread, and
//    leaves them with ComingSteps. The lookup takes the plan; before a remote store it has begun by
//    then, while the step before it computed. Where Plan knows what all workers look up, rows travel on
//    demand: OnDemand says what a step sends.
//
// 4. Concurrency. Every method is thread-safe. Lookups of direct tables run side by side; Apply
//    calls of one engine run one after the other. Calls about whole tables wait for a remote store
//    under the catalog's lock alone: steps go on meanwhile.
//
// 5. Checkpoints. Saving keeps no step waiting: the store is asked for some thousand rows at a
//    time. A load is several calls, from BeginLoad to CommitLoad or AbortLoad; Loader has its
//    state. In between a store in this process is the loader's alone: every use of a table is
//    refused with FailedPrecondition, rather than made to wait for a thread that may have failed.
//    At a remote store the servers keep everyone out, this process included: they answer "ask
//    again", and calls wait for as long as the deadline allows. Either way caches are emptied when
//    the load begins, and unsent updates with them, by the policy of ClientConfig::on_reload.
//
// 6. Memory that ends. Lookup, Apply and SumGradients throw std::bad_alloc, with rows as they were
//    before the call; the kernel (kernels/tf/tf_util.h) and the C functions (base/answer.h) make
//    ResourceExhausted of it.
//
// 7. Processes. A child of fork is refused by GetEngine (registry.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "het_tf/core/base/trace_log.h"
#include "het_tf/core/checkpoint/requests.h"
#include "het_tf/core/engine/client_driver.h"
#include "het_tf/core/engine/coming_steps.h"
#include "het_tf/core/engine/loader.h"
#include "het_tf/core/engine/on_demand.h"
#include "het_tf/core/engine/registry.h"
#include "het_tf/core/engine/step_store.h"
#include "het_tf/core/engine/table_backend.h"
#include "het_tf/core/engine/table_catalog.h"
#include "het_tf/core/engine/table_options.h"
#include "het_tf/core/engine/table_stats.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/core/store/table_store.h"
#include "het_tf/core/wire/transport.h"

namespace het {

class DeviceBackend;
class DeviceTables;
struct GradientSums;
struct MergedSums;

// Where rows are, beyond all caches.
struct EngineStore {
  std::unique_ptr<LocalService> service;  // null: the store is remote
  std::unique_ptr<TableStore> tables;     // makes and counts them
  std::unique_ptr<Transport> transport;   // carries frames of caches to it
};

class Engine {
 public:
  // Tables live in this process. `threads` counts the caller.
  explicit Engine(std::string name, size_t threads = 1, TimeFn time = UnixTime);
  // Tables live at a remote store. All have a cache.
  Engine(std::string name, size_t threads, std::unique_ptr<TableStore> store,
         std::unique_ptr<Transport> transport, const ClientConfig& config);
  ~Engine();

  const std::string& name() const { return name_; }
  void SetThreads(size_t threads);
  // Whether tables live elsewhere than in this process.
  bool remote() const { return store_.service == nullptr; }

  // --- steps

  // Reads the rows of a batch. Args:
  //   call   tables, and for each feature its table, ids and padding_id; at most BatchPlan::kMaxIds
  //          ids.
  //   out    out[f] receives features[f].ids.size() rows of the feature's dim, zeros for padding.
  //          Empty: nothing is copied.
  //   token  with it the call belongs to a training step: *token becomes the step's number, and its
  //          rows are kept for the Apply that will bring it back. Null: nothing is remembered, and
  //          neither caches nor counters of use change.
  // FailedPrecondition: a table was dropped, or is being loaded. DeadlineExceeded and others: the
  // store's.
  Status Lookup(const BatchCall& call, Span<float* const> out, uint64_t* token);

  // The same of tables on the device, with ids and `out` there. Rows are there when what is put on
  // the stream afterwards runs. `stream`: a cudaStream_t.
  Status LookupOnDevice(const BatchCall& call, Span<float* const> out, void* stream, uint64_t* token);

  // One tick for every key that occurs in a feature whose gradient counts. Args:
  //   call     as of the lookup.
  //   args     token (consumed, even when the call fails), gradients, learning rates, scale
  //            (batch_call.h).
  //   skipped  becomes true when a summed gradient is not finite and args.non_finite is kSkip.
  // FailedPrecondition: the token was used before, or is not one. InvalidArgument: a summed
  // gradient is not finite (kRaise). After an error no row has changed, but for errors of pushing:
  // the message says so.
  Status Apply(const BatchCall& call, const ApplyArgs& args, bool* skipped);

  // The same of tables on the device, with ids and gradients there. When it returns, nothing of the
  // stream uses its arguments but what was put there before.
  Status ApplyOnDevice(const BatchCall& call, const ApplyArgs& args, void* stream, bool* skipped);

  // Apply in two halves, for workers that sum their gradients before one of them ticks
  // (gradient_sums.h). The first consumes the token and changes no row; errors as of Apply.
  // Learning rates are not looked at.
  Status SumGradients(const BatchCall& call, const ApplyArgs& args, uint32_t workers, GradientSums* sums);
  // The second reads the rows and ticks each key once; none where the step is left out. `layer`: as of the
  // lookup's call. Errors as of Lookup and Apply.
  Status ApplySums(Span<const TablePtr> tables, uint64_t layer, const MergedSums& sums,
                   Span<const float> learning_rates);

  // A training lookup of these ids will come. It needs not sort them again, and where tables live at a
  // remote store its rows are asked for when the lookup before it has ended, unless a pull bound is 0
  // (coming_steps.h). Waits for nothing; what is wrong is the lookup's to tell. `window`: how many
  // batches of the layer may be planned, at least 1. Unimplemented: a table is cached on a device.
  // `all`: what all workers look up in this step; then rows of the layer travel on demand (on_demand.h).
  Status Plan(const BatchCall& call, size_t window, const GlobalStep::Ids* all = nullptr);

  // --- caches

  // Sends what caches hold back and waits until it is applied.
  Status Flush();
  // Flushes and empties caches, but for what was trained meanwhile: reads give the store's rows. A
  // copy that its worker went on training differs from them in the last bit, for it has rounded in
  // another order.
  Status Refresh();
  // What has been applied so far is in a checkpoint: it need not be kept for a server that loses
  // it.
  void MarkDurable();
  // The number of workers that train a table from the next call on. Where its bounds follow that, flushes, so
  // that no row holds back more than the new bound; an error of that leaves the bounds as they were.
  Status SetWorkers(const std::string& table, uint32_t workers);
  // What the steps of cached tables spend their time on, and those of others as a whole.
  TraceLog* trace() { return &trace_; }
  // For tests.
  DeviceTables* device();

  // --- tables

  // An equal second creation changes the limits at most, where the spec has some. AlreadyExists
  // when spec or options differ; the message shows both.
  Status CreateTable(const TableSpec& spec, const TableOptions& options);
  // NotFound lists the tables there are.
  Result<TablePtr> Find(const std::string& name) const { return catalog_.Find(name); }
  std::vector<std::string> TableNames() const { return catalog_.Names(); }
  Status DropTable(const std::string& name);
  // This process needs it no more. Its rows go where tables live in this process; at a remote store
  // they stay, with what was held back, and the memory of its cache goes.
  Status LeaveTable(const std::string& name);
  // Changes whenever a table is created or dropped: what was found before must be looked for again.
  uint64_t generation() const { return catalog_.generation(); }

  Result<size_t> Size(const std::string& table);   // rows that were ever written
  Result<size_t> Bytes(const std::string& table);  // of rows and index
  // values: keys.size() * dim floats, as a lookup reads them.
  Status Read(const std::string& table, Span<const Key> keys, float* values);
  // The same as the store has them, when caches have sent what they hold back. Keys occur once each.
  Status ReadStored(const std::string& table, Span<const Key> keys, float* values);
  // Sets values; slots return to their initial content. `rows` with slots when with_slots
  // (row_floats a key). Counts as one tick. Duplicate keys: the last one wins.
  Status Assign(const std::string& table, Span<const Key> keys, const float* rows, bool with_slots);
  // *removed: how many of the keys were there.
  Status Remove(const std::string& table, Span<const Key> keys, size_t* removed);
  Status Clear(const std::string& table);
  Result<TableRows> Scan(const std::string& table);
  // Fills the batch with rows of the store: with all of them where they fit, else with runs of rows from
  // random places, in which one may occur twice. What caches have not sent is not in them.
  Status Sample(const std::string& table, uint64_t seed, RowBatch* rows);
  Result<TableStats> Stats(const std::string& table);

  // --- checkpoints (checkpoint/)

  Result<het::StoreInfo> StoreInfo();
  // Writes one row file; several calls may run at once. What caches have not sent is not in it:
  // Flush first.
  Result<RowFileSummary> SaveRows(const std::string& path, const SaveRequest& request);
  // fn(rows) for all rows of a table, some at a time. What caches have not sent is not among them.
  Status VisitRows(const std::string& table, const std::function<Status(const RowBatch&)>& fn);
  // A second BeginLoad of the same loader renews its time.
  Status BeginLoad(const BeginRequest& request);
  // These two may run several at once.
  Status ClearForLoad(const std::string& table);
  Result<std::map<std::string, LoadedRows>> LoadRows(const std::string& path, const LoadRequest& request);
  Status CommitLoad(const CommitRequest& request);
  // The tables stay as they are: loaded in part. Nothing to do when nobody loads.
  Status AbortLoad();

 private:
  class Releaser;

  Engine(std::string name, size_t threads, EngineStore store, const ClientConfig& config);

  TableBackend& BackendOf(const TableOptions& options);
  template <typename Fn>
  Status ForBackends(const BatchCall& call, Fn fn);
  Status Lookup(const BatchCall& call, const CallMemory& memory, Span<float* const> out, uint64_t* token);
  Status Apply(const BatchCall& call, const CallMemory& memory, const ApplyArgs& args, bool* skipped);
  Status Number(StepCall* step);
  void TellUnplanned(const BatchCall& call);
  void TellSmallCaches(const BatchCall& call, const BatchPlan& plan);
  std::shared_ptr<const GlobalStep> GlobalOf(const BatchCall& call, const GlobalStep::Ids& all);
  Status Prepare(StepCall* step);
  // *plan, built where there is none.
  Step* BuildPlan(const BatchCall& call, StepStore::StepPtr* plan);

  Status RemoveTable(const std::string& name, bool with_rows);
  // With everything of it at the store.
  Result<TablePtr> FindFlushed(const std::string& name);
  // Row numbers must hold from one phase of an Apply to the next. Where tables are elsewhere
  // nothing is locked and steps go on: nothing of them is a row number of the store.
  std::unique_lock<std::mutex> LockRowNumbers();

  const std::string name_;
  const EngineStore store_;
  TraceLog trace_;
  const std::function<void(const std::string&)> notice_;
  StepStore steps_;
  ComingSteps coming_;
  ClientDriver driver_;
  OnDemand on_demand_;
  std::mutex global_mutex_;   // guards what follows; no other is taken while it is held
  BatchPlan global_scratch_;  // sorts the ids of all workers
  std::vector<std::unique_ptr<TableBackend>> backends_;  // in the order in which they are asked
  DeviceBackend* device_;                                // one of them
  // Locks are taken in this order: the loader's, apply_mutex_, the catalog's, pool_mutex_, the
  // driver's, that of the coming steps.
  TableCatalog catalog_;
  Loader loader_;
  std::mutex apply_mutex_;        // one Apply at a time
  std::shared_mutex pool_mutex_;  // shared: a lookup uses the pool; exclusive: the pool is replaced
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace het
