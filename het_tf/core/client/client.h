// A worker's side of the clock protocol: caches before a store of partitions, for all cached tables of one
// engine.
//
// Read makes sure that every asked row is in the cache and within the pull bound; Write ticks rows and pushes
// what is past the push bound. What must hold (I1-I5) and why is in docs/concepts.md. In short, with b the
// ticks that a cached row contains, p its unsent ticks, g the server's:
//
//   read    cached, bound finite ─► check (key, b)        absent ─► fetch         one request a partition,
//   all at once
//           answer (v, g, applied):  x = unsent ∘ frames after `applied` ∘ v,   b = g + ticks of those frames
//   write   x <- optimizer(x, G); p += 1;  p past the bound or, past small ones, at it (cache_config.h)
//           ─► into a numbered frame, b += p, p = 0;  wait where the bound asks for it
//
// Exactly once: frames of a partition are numbered without gaps, kept until durable, and sent again in order
// after any failure; the partition skips what it has applied and refuses a gap. The partition's incarnation
// number tells when it came to life again: then bases are invalid and rows are fetched anew, unsent updates
// stay.
//
// Failures are retried with backoff until nothing has moved on for `deadline`: no frame applied, no read
// answered. Then the call fails with a message that says which partition, where it is, since when, and why.
// Nothing that was ticked is lost by that: frames stay and go out with the next call.
//
// Durability: an applied frame is forgotten at once (kApplied), when enough replicas hold it (kReplicated),
// or when a checkpoint does (kCheckpoint, MarkDurable). A partition that comes to life with a last_seq below
// what it acknowledged has lost pushes: those that are kept are sent again (`repaired`), the others are
// counted (`lost_pushes`), and one notice says so. A partition that has merely forgotten a client that was
// silent for days has lost nothing: kept frames are durable then. See client_durability.cc for what it costs
// and where it ends.
//
// Concurrency: not thread-safe; the engine locks. A call may wait for the network, so one lock means one call
// at a time. BeginRead and Progress let a test have several reads on their way; ReadAhead has the rows of
// batches on their way whose lookups will come (client_ahead.cc).
#ifndef HET_TF_CORE_CLIENT_CLIENT_H_
#define HET_TF_CORE_CLIENT_CLIENT_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "het_tf/core/base/parallel.h"
#include "het_tf/core/client/device_rows.h"
#include "het_tf/core/client/link.h"
#include "het_tf/core/wire/transport.h"

namespace het {

constexpr double kNoticeSeconds = 5;

// When an applied push is durable, so that it need not be kept.
enum class Durability { kApplied, kReplicated, kCheckpoint };

struct ClientConfig {
  double request_timeout = 10;  // seconds without a byte until an unanswered request counts as lost
  double deadline = 60;         // seconds without progress until a call gives up
  // A flush sends frames of at most about so many bytes.
  size_t max_frame_bytes = size_t{16} << 20;
  // A store that is out of memory fails the call at once: for a store that shares this process's memory.
  bool fail_out_of_memory = false;
  double first_backoff = 0.01;
  double max_backoff = 1;
  Durability durability = Durability::kApplied;
  uint32_t min_replicas = 1;      // kReplicated: so many hold a push that is durable
  double replica_interval = 0.1;  // kReplicated: seconds between two questions to the replicas
  // Applied frames that are kept take at most so much, and a step's worth more. Beyond it, kReplicated waits
  // for the replicas, and kCheckpoint forgets the oldest ones.
  size_t keep_bytes = size_t{256} << 20;
  // What becomes of unsent updates of a table that was loaded or cleared meanwhile.
  enum OnReload { kDiscard, kKeep } on_reload = kDiscard;
  // Told what a call waits for, first after kNoticeSeconds and then at ever longer intervals.
  std::function<void(const std::string&)> notice;
};

// "10 s"; "partition 3", "partitions 3, 4 and 12 more".
std::string Seconds(double seconds);
std::string PartitionNames(const std::vector<uint32_t>& partitions);

// The unique keys of one table and partition, in arrays of `uniques` elements.
struct CachedRead {
  struct Part {
    uint64_t table;
    uint32_t partition;
    size_t uniques;
    const Key* keys;
    const uint64_t* hashes;
    uint32_t* rows;        // out, for a training read: lines
    const float** values;  // out: good until the next call on the client
  };
  Vector<Part> parts;
  uint64_t kind = 0;  // the same for all reads of one layer; 0: no ReadAhead is about it
  // For ReadAhead: rows that are cached are checked, too, and the lookup does without checks if at most so
  // many training reads of its kind came in between. 0: the lookup checks.
  uint32_t check_ahead = 0;
  uint64_t batch = 0;                  // which keys it has, once that was asked for
  Vector<const float*> values;         // room for the parts' values
  Vector<Vector<float>> private_rows;  // rows that a reading without training fetched
};

struct CachedWrite {
  struct Part {
    uint64_t table;
    uint32_t partition;
    size_t uniques;
    const Key* keys;
    const uint64_t* hashes;
    uint32_t* rows;          // lines, as the read left them; checked
    float* sums;             // dim floats a key; used up
    const uint8_t* touched;  // 0: this key gets no tick
    float learning_rate;
  };
  Vector<Part> parts;
};

// A read on its way.
struct ReadOp {
  CachedRead* read = nullptr;
  uint64_t token = 0;  // 0: no training: rows are neither admitted nor counted as used
  size_t open_parts = 0;
  Status error;
  std::vector<ReadPartPtr> parts;
  Vector<std::pair<TableCache*, uint32_t>> pins;
  std::map<std::pair<const TableCache*, Key>, Vector<float>> fetched;  // without training
  DeviceRead* device = nullptr;  // rows are for a device; of what is above, parts and error alone are used
  bool ahead = false;            // its lookup will come: rows are transient until then
  bool checked = false;          // rows in the cache were checked ahead; of one that is ahead: are checked
  // Rows that another read, which is ahead, has on their way: asked for by `ask` once `of` is answered.
  struct Late {
    ReadPartPtr of;
    uint32_t partition;
    ReadPartPtr ask;  // its fetches: all these keys
  };
  std::vector<Late> late;

  bool done() const { return open_parts == 0 || !error.ok(); }
};

// A batch whose lookup will come.
struct AheadRead {
  ReadOp op;  // its parts: those that are not answered; its pins: the lines that are held
  uint64_t kind = 0;
  uint64_t batch = 0;                        // which keys it has
  std::map<const TableCache*, size_t> rows;  // that are held, or on their way
  size_t passed = 0;                         // training reads of its kind that had other keys
  size_t check_ahead = 0;                    // as in CachedRead; 0, too, where a row was left out
};

class Client {
 public:
  // Tokens whose rows stay pinned; older ones are let go.
  static constexpr size_t kPinnedTokens = 8;

  explicit Client(Transport* transport, ClientConfig config = ClientConfig());
  ~Client();

  Status AddTable(const Schema& schema, const CacheConfig& config);
  void RemoveTable(uint64_t table);

  // Fills in rows and values of every part. Throws std::bad_alloc.
  Status Read(CachedRead* read, uint64_t token);
  // One tick for every touched key. After an error: the ticks that were made are kept and will be sent; a row
  // that had to be fetched first and could not be leaves everything unchanged. Throws std::bad_alloc
  // before it has changed anything.
  Status Write(CachedWrite* write, uint64_t token, ThreadPool* pool);
  // Asks for the rows of a batch whose lookup will come that are not in the cache, and holds those that are:
  // none leaves before a read of the same keys and kind has succeeded. Holds at most as many rows of a table
  // as its cache may have; the rest is the lookup's to fetch. With check_ahead, I2 counts from here for
  // tables with a pull bound above 0, and the read waits until all this is answered. Never waits itself;
  // trouble is the lookup's to tell. Fills in rows. Throws std::bad_alloc, and then nothing is held.
  void ReadAhead(const CachedRead& wanted);
  // Rows of such batches are on their way.
  bool AheadOnWay() const;
  // The token's rows may be evicted again. Unknown tokens are fine.
  void Unpin(uint64_t token);
  // Pushes everything and waits until it is applied. Of tables on a device: what PushForDevice was given.
  Status Flush();
  // All applied frames are durable: they need not be kept.
  void MarkDurable();
  // Frames or questions are on their way, or will be: Progress is to be called, in Due() seconds at the
  // latest even if nothing comes.
  bool Busy() const;
  double Due();

  // The rows were changed behind the cache's back: forget them, with their unsent updates.
  void Invalidate(uint64_t table, Span<const Key> keys);
  void ForgetTable(uint64_t table);
  // Lines without unsent updates go: what is read next comes from the store.
  void ForgetClean();
  // Tables are about to be loaded: all caches are emptied, unsent updates discarded and told, and this client
  // is another one from now on. Nothing to do where they are to be kept (on_reload): then the new epochs
  // tell.
  void Reload();

  const Counters& Stats(uint64_t table) { return caches_.at(table)->counters(); }
  bool HasTable(uint64_t table) const { return caches_.count(table) != 0; }
  TableCache* cache(uint64_t table) { return caches_.at(table).get(); }
  const Link& link(uint32_t partition) const { return links_[partition]; }
  // Ticks of key that this worker made and that no answer has shown to be applied: in its line, queued, in
  // frames. Of a table whose cache is on a device: in frames.
  uint64_t UnappliedTicks(uint64_t table, Key key);

  // --- tables whose cache is on a device (device/device_rows.h). Their TableCache has the schema, bounds,
  // counters and admission filter, and never a line. What the protocol does not see is counted by the
  // device's side: reads, hits, inserts, evictions, transient_rows, ticks, discarded_ticks.

  Status AddDeviceTable(const Schema& schema, const CacheConfig& config, DeviceLines* lines);
  // Whether the device may be used for this table. FailedPrecondition: it is an ordinary one, or this process
  // is a fork. To be asked before the device is touched; the calls below ask it, too.
  Status CheckDevice(uint64_t table);
  // Fills in every part. After an error nothing of it is to be used. Throws std::bad_alloc.
  Status ReadForDevice(DeviceRead* read, bool training);
  // Puts the updates into frames and sends what can be sent. After an error, which is CheckDevice's, and when
  // it throws std::bad_alloc, nothing was taken; trouble of the network is WaitForDevice's to tell.
  Status PushForDevice(const DevicePush& push);
  // Frames of pushes to come are numbered from here on.
  uint64_t next_frame() const { return next_frame_; }
  // The end of a step: waits until what was pushed of device tables with a finite push bound is applied, and
  // makes room for frames that are kept. Frames of this step, those from `of_step` on, are waited for only
  // where a row has more ticks than its push bound; the step has pushed no row of its tables twice. After an
  // error frames are kept and will be sent.
  Status WaitForDevice(uint64_t of_step = UINT64_MAX);

  // --- the same, step by step
  std::unique_ptr<ReadOp> BeginRead(CachedRead* read, uint64_t token);
  std::unique_ptr<ReadOp> BeginReadForDevice(DeviceRead* read, bool training);
  // Sends what can be sent and handles what has come, waiting at most so long for the first event.
  void Progress(double wait);
  // Fills in rows and values, or returns the error. Call it when the op is done, or to abandon it.
  Status FinishRead(ReadOp* op);

 private:
  using Pins = Vector<std::pair<TableCache*, uint32_t>>;

  // client.cc: calls
  void Classify(ReadOp* op);
  static void AskAbout(TableCache* cache, uint32_t line, ReadPart::Section* section);
  Status AwaitRead(ReadOp* op);
  void CheckFork();
  void StartOver();
  Status FetchMissing(CachedWrite* write, uint64_t token);
  static Status NoMemoryToPush();

  // client_push.cc: what becomes a frame, and when
  void PushDue(const CachedWrite& write);
  void PushQueues(bool whole = false);
  Status WaitForPushBound(const CachedWrite& write);
  PushFrame* NewFrame(Link* link);
  TablePush* NewPush(Link* link, PushFrame** frame, TableCache* cache, size_t rows);
  void TrimCaches();

  // client_durability.cc: how long frames are kept, and what is told when a server lost some
  void AskReplicas();
  void HandleReplicas(Link* link, const Transport::Event& event);
  size_t KeptBytes() const;
  Status MakeRoomForKept();
  void Lost(Link* link, uint64_t lost, uint64_t repaired);
  void ReportLoss();

  // client_wait.cc: waiting, and telling what for
  Status Wait(const std::function<bool()>& done, const char* what,
              const char* remedy = "Check the servers, or raise het_tf.init(deadline=...)");
  std::string WhatIsMissing(bool* out_of_memory);

  // client_link.cc: frames out, answers in
  struct Outgoing {  // a request that may go out
    Link* link;
    const PushFrame* frame;
    ReadPartPtr part;
  };
  void Pump();
  bool Next(Link* link, Outgoing* next);
  size_t RowBytes(const Outgoing& request) const;
  void MakeRequest(const Outgoing& from, Request* request);
  void Send(const std::vector<Outgoing>& parts);
  void CountRequests(const std::vector<Outgoing>& parts, const std::vector<Request>& requests,
                     const Vector<TableBytes>& tables, size_t bytes);
  void CheckTimeouts();
  void HandleEvent(Transport::Event* event);
  void CountReply(const Link& link, const Reply& reply, size_t bytes, const Vector<TableBytes>& tables);
  void HandleFrame(Transport::Event* event);
  void GiveUpFrame(uint32_t frame, const std::string& reason);
  void HandleReply(Link* link, const Reply& reply);

  // client_answer.cc: rows that have come
  bool AnswersRequest(const Reply& reply, const ReadPart& part) const;
  void HandleAnswer(Link* link, const Reply& reply, const ReadPartPtr& part, bool told);
  void InstallAnswer(Link* link, const Reply& reply, const TableReply& answer,
                     const ReadPart::Section& section, ReadOp* op);
  void Install(Link* link, TableCache* cache, Key key, Clock clock, const float* row, uint64_t applied,
               bool fetched, bool admit, ReadOp* op);

  // client_told.cc: rows that are held, of which the partition tells when they have moved
  static void Doubt(ReadPart* part);
  static ReadPartPtr Doubted(const ReadPart& part);
  void Tell(Link* link, ReadPart* part, Request* request);
  void TakeTold(Link* link, const Reply& reply, const TableReply& answer, TableCache* cache, ReplyRows* rows);
  void NothingIsHeld(Link* link);

  // client_ahead.cc: rows of batches whose lookups will come
  size_t RoomAhead(const TableCache& cache) const;
  bool WaitsForAhead(ReadOp* op, TableCache* cache, uint32_t partition, Key key);
  const AheadRead* CheckedAhead(CachedRead* read) const;
  Status AwaitAhead(CachedRead* read);
  void UseAhead(TableCache* cache, uint64_t token, Span<const uint32_t> lines);
  void FollowAhead();
  void AskLate(ReadOp* op, ReadOp::Late late);
  void ReadOfAhead(const ReadOp& op);
  void ReleaseAhead(size_t which);
  void Arrived(const ReadPart& part);
  void DropAhead();

  // client_device.cc: tables whose cache is on a device
  void ClassifyForDevice(ReadOp* op, bool training);
  void AnswerForDevice(Link* link, uint64_t applied, const TableReply& answer,
                       const ReadPart::Section& section);
  void AskAnew(Link* link, bool answered_alone);
  static Status Forsaken(const TableSchema& schema);
  DeviceLines* LinesOf(const TableCache& cache) const { return forsaken_ ? nullptr : cache.device(); }

  // client_failures.cc
  void Acknowledge(Link* link, uint64_t last_seq);
  void Reborn(Link* link, uint64_t last_seq);
  void Forgotten(Link* link);
  void NewEpoch(Link* link, TableCache* cache, uint64_t epoch);
  void DropTablePart(Link* link, TableCache* cache);
  void Failed(Link* link, const std::string& reason, bool connection_lost);
  void Requeue(Link* link, ReadPartPtr part);
  void Fail(ReadPart* part, Status status);

  Link* LinkOf(const TableCache& cache, Key key);
  // One that no link has had: what was pushed under an older one is another client's.
  ClientId NewId() { return {base_id_.high, base_id_.low + ++generation_}; }

  Transport* const transport_;
  const ClientConfig config_;
  int process_;  // a fork is another client
  std::map<uint64_t, std::unique_ptr<TableCache>> caches_;
  std::deque<Link> links_;
  ClientId base_id_;         // the lower half of `low` counts
  uint64_t generation_ = 0;  // of the newest id
  std::map<uint64_t, Pins> tokens_;
  std::vector<ReadOp*> device_reads_;             // under way
  std::deque<std::unique_ptr<AheadRead>> ahead_;  // oldest first
  // Which part of a read ahead brings a row.
  using OnWay = boost::unordered_flat_map<Key, ReadPartPtr, KeyHash>;
  std::map<const TableCache*, OnWay> on_way_;
  std::vector<ReadOp*> late_reads_;  // those that have `late`
  bool forsaken_ = false;            // a fork: what is on devices is the parent's
  uint32_t next_request_id_ = 1;
  uint64_t next_frame_ = 1;
  uint64_t jitter_;
  uint64_t out_of_memory_ = 0;  // answers that said so
  Status rejected_;             // of the call that is running
  double waiting_since_ = 0;    // when it began to wait
  double progress_at_ = 0;      // when a frame was applied or a read answered last
  double ask_at_ = 0;           // when replicas may be asked again
  double ask_pause_ = 0;        // grows while there are too few of them
  bool few_told_ = false;       // that replicas are too few
  bool dropped_ = false;        // frames were forgotten for want of room, and that was said
  // Told in one notice: pushes that servers lost.
  struct Loss {
    double since = 0;
    uint64_t lost = 0;
    uint64_t repaired = 0;
    std::vector<uint32_t> partitions;
  } loss_;
  std::vector<Transport::Event> events_;
};

}  // namespace het

#endif  // HET_TF_CORE_CLIENT_CLIENT_H_
