// All tables of one namespace in this process, and the two operations of a step. What the kernels call.
//
// A table is served in one of three ways, chosen when it is created:
//   direct     the embedded store's partitions are the store: lookups gather from them and updates apply in
//              place
//   cached     an embedding cache with per-row clocks stands before the store (client.h), as before a remote
//              one
//   on device  the same, with the cache in the memory of a device (device/device_tables.h). Its calls take
//              ids, rows and gradients there, or in this process's memory as all others do
// Tables of the last kind and of the other two do not go into one call.
//
// Concurrency: every method is thread-safe. Lookups of direct tables run side by side (a partition's mutex is
// held while its rows are copied); Apply calls of one engine run one after the other; a cached table's client
// is used by one call at a time.
//
// Pushes to a remote store move on between calls too: a thread looks after answers, resends and questions to
// replicas once no call has come for kQuietSeconds. It takes client_mutex_ only if that is free, and holds it
// while it waits only where a server has closed its connection: a second at most for each server that it asks
// who took over. It sleeps without an end when nothing is on its way. It starts with the first such call; an
// engine whose tables live in this process has none. A child of fork starts as another client, with empty
// caches, connections of its own, and without the thread until its own first call.
//
// Prefetch waits neither for the client nor for the network (engine_prefetch.cc).
//
// Calls about whole tables wait for a remote store under admin_mutex_ alone: steps go on meanwhile.
//
// Saving keeps no step waiting: the store is asked for some thousand rows at a time. A load is several
// calls, from BeginLoad to CommitLoad or AbortLoad. In between a store in this process is the loader's alone:
// every use of a table is refused with FailedPrecondition, rather than made to wait for a thread that may
// have failed. At a remote store the servers keep everyone out, this process included: they are answered
// "ask again", and calls wait for as long as the deadline allows. Either way caches are emptied when the load
// begins, and unsent updates with them, by the policy of ClientConfig::on_reload.
#ifndef HET_TF_CORE_ENGINE_ENGINE_H_
#define HET_TF_CORE_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "het_tf/core/base/background.h"
#include "het_tf/core/checkpoint/requests.h"
#include "het_tf/core/engine/table_options.h"
#include "het_tf/core/engine/table_stats.h"
#include "het_tf/core/plan/batch_call.h"
#include "het_tf/core/store/local_service.h"
#include "het_tf/core/store/table_store.h"
#include "het_tf/core/wire/transport.h"

namespace het {

class Client;
class DeviceTables;
class PrefetchQueue;
struct ClientConfig;
struct GradientSums;
struct MergedSums;
struct Step;

class Engine {
 public:
  // Tables live in this process. `threads` counts the caller.
  explicit Engine(std::string name, size_t threads = 1, TimeFn time = UnixTime);
  // Tables live at a remote store: `transport` carries frames to it, `store` makes and counts its tables. All
  // tables have a cache.
  Engine(std::string name, size_t threads, std::unique_ptr<TableStore> store,
         std::unique_ptr<Transport> transport, const ClientConfig& config);
  ~Engine();

  const std::string& name() const { return name_; }
  void SetThreads(size_t threads);

  // An equal second creation changes the limits at most, where the spec has some. AlreadyExists when spec or
  // options differ; the message shows both.
  Status CreateTable(const TableSpec& spec, const TableOptions& options);
  // NotFound lists the tables there are.
  Result<TablePtr> Find(const std::string& name) const;
  std::vector<std::string> TableNames() const;
  Status DropTable(const std::string& name);
  // Changes whenever a table is created or dropped: what was found before must be looked for again.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

  // out[f] receives features[f].ids.size() rows of the feature's dim. With `token`, the call belongs to a
  // training step: its rows are kept for the Apply that will come with the token. Without, nothing is
  // remembered: neither caches nor counters of use change. `out` may be empty: then nothing is copied.
  Status Lookup(const BatchCall& call, Span<float* const> out, uint64_t* token);

  // The same of tables on the device, with ids and `out` there. Rows are there when what is put on the stream
  // afterwards runs. `stream`: a cudaStream_t.
  Status LookupOnDevice(const BatchCall& call, Span<float* const> out, void* stream, uint64_t* token);

  // A training lookup of these ids will come: rows that the caches lack are fetched meanwhile, and those that
  // they have stay until then. It changes no row that a lookup reads. Returns at once; what cannot be done is
  // the lookup's to tell. Nothing to do where tables live in this process. check_ahead: the rows are checked
  // here if the lookup comes with at most so many training lookups of its kind before it; 0: it checks them.
  // Unimplemented: a table is cached on a device.
  Status Prefetch(const BatchCall& call, uint32_t check_ahead, const NoFork&);

  // One tick for every key that occurs in a feature whose gradient is not all zero. FailedPrecondition: the
  // token was used before, or is not one. InvalidArgument: a summed gradient is not finite (kRaise); with
  // kSkip *skipped becomes true. After an error no row has changed.
  Status Apply(const BatchCall& call, const ApplyArgs& args, bool* skipped);

  // The same of tables on the device, with ids and gradients there. When it returns, nothing of the stream
  // uses its arguments but what was put there before.
  Status ApplyOnDevice(const BatchCall& call, const ApplyArgs& args, void* stream, bool* skipped);

  // Apply in two halves, for workers that sum their gradients before one of them ticks (gradient_sums.h).
  // The first consumes the token and changes no row; errors as of Apply. Learning rates are not looked at.
  Status SumGradients(const BatchCall& call, const ApplyArgs& args, GradientSums* sums);
  // The second reads the rows and ticks each key once. Errors as of Lookup and Apply.
  Status ApplySums(Span<const TablePtr> tables, const MergedSums& sums, Span<const float> learning_rates);

  // Sends what caches hold back and waits until it is applied.
  Status Flush();
  // Flushes and empties caches, but for what was trained meanwhile: reads give the store's rows. A copy that
  // its worker went on training differs from them in the last bit, for it has rounded in another order.
  Status Refresh();
  // What has been applied so far is in a checkpoint: it need not be kept for a server that loses it.
  void MarkDurable();
  // Other bounds for a cached table, from the next call on. Flushes, so that no row holds back more than the
  // new bound; an error of that leaves the bounds as they were. Nothing to do for a direct table.
  Status SetBounds(const std::string& table, int64_t pull_bound, int64_t push_bound);
  // For tests.
  DeviceTables* device() { return device_.get(); }
  // Whether tables live elsewhere than in this process.
  bool remote() const { return service_ == nullptr; }

  // --- a table as an object
  Result<size_t> Size(const std::string& table);   // rows that were ever written
  Result<size_t> Bytes(const std::string& table);  // of rows and index
  // values: keys.size() * dim floats.
  Status Read(const std::string& table, Span<const Key> keys, float* values);
  // Sets values; slots return to their initial content. `rows` with slots when with_slots (row_floats a key).
  // Counts as one tick. Duplicate keys: the last one wins.
  Status Assign(const std::string& table, Span<const Key> keys, const float* rows, bool with_slots);
  // *removed: how many of the keys were there.
  Status Remove(const std::string& table, Span<const Key> keys, size_t* removed);
  Status Clear(const std::string& table);
  Result<TableRows> Scan(const std::string& table);
  Result<TableStats> Stats(const std::string& table);

  // --- checkpoints (checkpoint/)
  Result<het::StoreInfo> StoreInfo();
  // Writes one row file; several calls may run at once. What caches have not sent is not in it: Flush first.
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
  std::unique_ptr<Step> NewStep();
  void Recycle(std::unique_ptr<Step> step);
  uint64_t ReserveToken();
  void Remember(uint64_t token, std::unique_ptr<Step> step);
  Status Consume(uint64_t token, std::unique_ptr<Step>* step);
  // Its rows may leave the cache that they are in.
  void Release(uint64_t token);

  // engine_prefetch.cc
  void StartPrefetches();
  void LeaveToBackground();
  void ServePrefetches();

  // engine_device.cc
  static Result<bool> AllOnDevice(const BatchCall& call);
  Status LookupThere(const BatchCall& call, Span<float* const> out, const CallMemory& memory,
                     uint64_t* token);
  Status ApplyThere(const BatchCall& call, const ApplyArgs& args, const CallMemory& memory, bool* skipped);
  Status DeviceStats(const Table& table, CacheStats* stats);

  Status LookupDirect(const BatchCall& call, Step* step);
  Status LookupCached(const BatchCall& call, Step* step, uint64_t token);
  Status ApplyStep(const BatchCall& call, const ApplyArgs& args, Step* step, bool* skipped);
  Status ApplyCached(const BatchCall& call, const ApplyArgs& args, Step* step);
  void UndoRows(const BatchCall& call, Step* step);
  void Invalidate(const Table& table, Span<const Key> keys);
  // Row numbers must hold from one phase of an Apply to the next. Where tables are elsewhere nothing is
  // locked and steps go on: nothing of them is a row number of the store.
  std::unique_lock<std::mutex> LockRowNumbers();
  Status RefuseWhileLoading() const;
  void SetLoading(bool loading);
  Status CheckLoading() const;

  const std::string name_;
  const std::unique_ptr<LocalService> service_;  // null: the store is remote
  const std::unique_ptr<TableStore> store_;
  const std::unique_ptr<Transport> transport_;

  // A call that uses the client: holds its mutex, and leaves what is on its way to the thread.
  class ClientCall;
  Background::Pause LookAfterPushes();

  // Locks are taken in the order in which they stand here.
  std::shared_mutex load_mutex_;  // shared: rows are saved or loaded; exclusive: a load begins or ends
  std::string loader_;            // guarded by it; empty: none has begun here
  std::mutex apply_mutex_;        // one Apply at a time
  std::mutex admin_mutex_;        // one creation, drop or clearing of a table at a time
  std::shared_mutex pool_mutex_;  // shared: a lookup uses the pool; exclusive: the pool is replaced
  std::unique_ptr<ThreadPool> pool_;
  // The store in this process is the loader's alone. Set with the three mutexes above held.
  std::atomic<bool> loading_{false};

  const std::unique_ptr<PrefetchQueue> prefetches_;
  std::mutex client_mutex_;  // the cache of the cached tables, transport_, and what follows
  std::unique_ptr<Client> client_;
  std::unique_ptr<DeviceTables> device_;
  uint64_t calls_ = 0;  // so far
  bool asleep_ = true;  // the thread sleeps until something happens that it knows of
  // Of the thread: how many calls there were when it looked, and how long it leaves a running call alone.
  uint64_t calls_seen_ = 0;
  double patience_ = 0;

  mutable std::mutex tables_mutex_;
  std::map<std::string, TablePtr> tables_;
  std::atomic<uint64_t> generation_{1};

  std::mutex tokens_mutex_;  // guards what follows
  uint64_t next_token_ = 1;
  // Null: the plan was given up, or it is the device's.
  std::map<uint64_t, std::unique_ptr<Step>> pending_;
  size_t plans_pending_ = 0;
  uint64_t oldest_plan_ = 1;  // no token below has a plan
  std::vector<std::unique_ptr<Step>> spare_;

  Background background_;  // the last member: its thread ends before anything that it uses
};

// The process-wide registry of namespaces. The engine of a new name is made by the factory, which may fail,
// and may take long: other names stay usable meanwhile. By default tables live in this process.
using EngineFactory = std::function<Result<std::shared_ptr<Engine>>(const std::string& name, size_t threads)>;
// Null: the default. Engines without tables are forgotten; FailedPrecondition, and nothing changes, when one
// has some: they would stay where they are.
Status SetEngineFactory(EngineFactory factory);
Result<std::shared_ptr<Engine>> GetEngine(const std::string& name);
// Null: there is none of that name yet.
std::shared_ptr<Engine> FindEngine(const std::string& name);
// Forgets a namespace and all its tables.
void ResetEngine(const std::string& name);
// Threads of engines, those that exist and those to come.
void SetEngineThreads(size_t threads);

}  // namespace het

#endif  // HET_TF_CORE_ENGINE_ENGINE_H_
