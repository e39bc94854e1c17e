/* The embedding cache in device memory: a plain C ABI, and all that code outside this folder knows of it.
 *
 * Two libraries implement it from one source: libhet_cuda.so (nvcc, a GPU) and libhet_cuda_host.so (the host
 * plays the device, for machines and tests without one). tests/ext/gpu/device has a third, written as plainly
 * as possible, as the reference for both. Callers load one of them at run time.
 *
 *   HetDevLookup ──► rows that are here and within their bound, as far as the store has told
 *        │ wanted: keys that are absent, and rows whose clock the store must check
 *        ▼
 *   (the caller asks the store) ──► HetDevInstall ──► victims: updates of evicted rows
 *        │
 *        └► HetDevGather: the rows that HetDevLookup could not return
 *
 *   HetDevSum ──► sums of gradients per key
 *        │ wanted: rows that have left since the lookup; install them and call HetDevSum again
 *        ▼
 *   HetDevTick ──► one tick a key; due: updates past the push bound
 *
 * A row here is [value: dim floats | slots], and has
 *   base     the store's clock that it contains; includes its own updates that were exported
 *   ticks    its own, not exported yet (p), with their update (d) composed by the optimizer's rules
 *   stamp    number of the last training lookup that used it; frequency, for lfu
 *   copy     checked; subscribed: the store names the row when it moves past its bound; moved: it has named
 *            it; invalid: its base is unknown, its value must be fetched again, its update stays. The moves
 *            from one to another are those of core/cache/line_marks.h
 * as in docs/protocol.md. The caller decides when a row is fetched, checked or pushed; this library decides
 * only which row leaves a full bucket.
 *
 * A table is buckets of 32 rows. A key belongs to one bucket; a full bucket evicts the row with the lowest
 * score:
 *   lru  (stamp, key)
 *   lfu  (frequency, stamp, key); frequencies are halved after 8 x capacity first uses in a step
 * Keys are ordered as unsigned numbers, here and below. The frequency of a row counts the training lookups
 * that used it, including the one that brought it in, up to 65535. First uses are
 * cached rows that a training lookup uses, and rows that enter; HetDevLookup and HetDevInstall add them up at
 * their end. Rows whose stamp is at or above HetDevUse.pinned_from are never evicted, nor are rows that the
 * same HetDevInstall installs. If a key may not enter, or its bucket has no row to evict, the call keeps its
 * row: it is served and ticked there, and its update is exported with that tick. An id that is repeated in a
 * call counts once.
 *
 * Results are deterministic: two runs with the same inputs give the same bytes. The gradients of a key are
 * summed in the order of features and of ids within one, as on the CPU, if it occurs up to 64 times in a
 * call; otherwise partial sums of 64 consecutive occurrences each are added in order.
 *
 * Concurrency: the caller serializes the calls with one context; they may come from any thread. Work is put
 * on the given stream, after the work of earlier calls on other streams. Functions that return results for
 * the host wait for their own stream, but HetDevLookup only for a stream of the context, where it finds rows:
 * after the last call that has changed rows, and not after the caller's work; the rows are then copied on the
 * given stream. A stream of another device is HET_DEV_INVALID. The calling thread's current device does not
 * change.
 *
 * Memory: a function allocates all it needs before it changes anything. After HET_DEV_OUT_OF_MEMORY all
 * tables are unchanged, and so they are after HET_DEV_OUT_OF_HOST_MEMORY. After HET_DEV_FAILED the device and
 * its contents are lost.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HET_DEV_EXPORT __attribute__((visibility("default")))
#define HET_DEV_ABI_VERSION 7

#ifdef __cplusplus
extern "C" {
#endif

typedef void* HetDevStream;                 /* cudaStream_t; null: the legacy default stream */
typedef struct HetDevContext HetDevContext; /* a device: scratch memory and staging buffers of calls */
typedef struct HetDevTable HetDevTable;     /* the cache of one table */
typedef struct HetDevCall HetDevCall;       /* the state of one step from its lookup to its tick */

enum {
  HET_DEV_OK = 0,
  HET_DEV_INVALID = 1,            /* an argument; the message names it, its value and the remedy */
  HET_DEV_OUT_OF_MEMORY = 2,      /* of the device */
  HET_DEV_OUT_OF_HOST_MEMORY = 3, /* page-locked or other */
  HET_DEV_NO_DEVICE = 4,
  HET_DEV_DRIVER_TOO_OLD = 5, /* the message says which driver there is and which one is needed */
  HET_DEV_FAILED = 6,         /* a launch or a copy; the message names the kernel */
};
/* The message of this thread's last call that failed. */
HET_DEV_EXPORT const char* HetDevError(void);

/* --- the device */

typedef struct {
  int abi_version;
  const char* executor;   /* "cuda", "host" or "reference"; static */
  const char* built;      /* compiler and architectures; static */
  char name[128];         /* of the device */
  int compute_capability; /* 90 for 9.0; 0: no GPU */
  int driver_version;     /* 13000 for 13.0; 0: no GPU */
  int runtime_version;
  int multiprocessors;
  uint64_t memory_bytes;
  uint64_t free_bytes;
} HetDevInfo;
/* Returns the library's HET_DEV_ABI_VERSION, without touching a device. */
HET_DEV_EXPORT int HetDevAbiVersion(void);
/* Fills abi_version, executor, built and the versions even after HET_DEV_NO_DEVICE and
 * HET_DEV_DRIVER_TOO_OLD. */
HET_DEV_EXPORT int HetDevDescribe(int device, HetDevInfo* info);

HET_DEV_EXPORT int HetDevCreateContext(int device, HetDevContext** context);
/* Its tables and calls must have been destroyed. Every Destroy accepts null. */
HET_DEV_EXPORT void HetDevDestroyContext(HetDevContext* context);

/* Device memory and synchronous copies, for tests, benchmarks, and callers whose rows are in host memory. */
HET_DEV_EXPORT int HetDevMalloc(HetDevContext* context, size_t bytes, void** memory);
HET_DEV_EXPORT void HetDevFree(HetDevContext* context, void* memory);
HET_DEV_EXPORT int HetDevCopyIn(HetDevContext* context, void* device, const void* host, size_t bytes,
                                HetDevStream stream);
HET_DEV_EXPORT int HetDevCopyOut(HetDevContext* context, void* host, const void* device, size_t bytes,
                                 HetDevStream stream);
HET_DEV_EXPORT int HetDevSynchronize(HetDevContext* context, HetDevStream stream);

/* --- a table */

#define HET_DEV_MOST_ROWS UINT64_C(4294967264) /* 2^32 - 32: lists of rows are 32-bit */

enum { HET_DEV_LRU = 0, HET_DEV_LFU = 1 };
enum {
  HET_DEV_SGD = 0,              /* {} */
  HET_DEV_MOMENTUM = 1,         /* {momentum, nesterov (0 or 1)} */
  HET_DEV_RMSPROP = 2,          /* {rho, epsilon} */
  HET_DEV_ADAM = 3,             /* {beta_1, beta_2, epsilon}; no slot m with a beta_1 of 0 */
  HET_DEV_ADAGRAD = 4,          /* {initial_accumulator, epsilon, decay_steps} */
  HET_DEV_ROW_WISE_ADAGRAD = 5, /* {initial_accumulator, epsilon, decay_steps} */
  HET_DEV_FTRL = 6,             /* {l1, l2, beta, l2_shrinkage, initial_accumulator} */
};

typedef struct {
  const char* name;  /* for messages */
  uint64_t capacity; /* rows, 1 to HET_DEV_MOST_ROWS; rounded up to whole buckets of 32 */
  uint32_t dim;
  uint32_t row_floats; /* dim and the optimizer's slots (core/row/optimizer.h) */
  int policy;
  int optimizer;
  double params[8]; /* of the optimizer, in the order above */
  double l2;        /* as in core/row/schema.h */
  double max_norm;
  int keep_updates;    /* 0: push bounds are always 0, updates take no memory */
  uint64_t table;      /* its id; determines the partitions of keys (core/wire/layout.h) */
  uint64_t hash_seed;  /* of the store: the hash of a key is that of core/base/hash.h */
  uint32_t partitions; /* of the store */
} HetDevTableConfig;

/* Computes the bytes of device memory that the table will take. */
HET_DEV_EXPORT int HetDevTableBytes(const HetDevTableConfig* config, uint64_t* bytes);
/* HET_DEV_OUT_OF_MEMORY says how much it needs and how much is free. */
HET_DEV_EXPORT int HetDevCreateTable(HetDevContext* context, const HetDevTableConfig* config,
                                     HetDevTable** table);
HET_DEV_EXPORT void HetDevDestroyTable(HetDevContext* context, HetDevTable* table);

typedef struct {
  uint64_t capacity; /* as rounded */
  uint64_t bytes;    /* of device memory */
  uint64_t rows;
  uint64_t dirty; /* rows with ticks that were not exported */
  uint64_t invalid;
  uint64_t subscribed;
  uint64_t inserts;   /* since the table was created */
  uint64_t evictions; /* since the table was created */
} HetDevTableState;
HET_DEV_EXPORT int HetDevState(HetDevContext* context, HetDevTable* table, HetDevStream stream,
                               HetDevTableState* state);

/* --- a step */

typedef struct { /* a table in this call */
  HetDevTable* table;
  int check;            /* the store must check cached rows too */
  uint64_t stamp;       /* of this lookup: grows with each training lookup; below 2^32 */
  uint64_t pinned_from; /* rows with this stamp or a later one are not evicted */
  int64_t push_bound;   /* INT64_MAX: unbounded */
  uint32_t push_every;  /* 0: push_bound holds for all rows; else a row's bound is its age / push_every, at
                           most push_bound, and below an age of push_from at most push_early; its age is
                           (base + ticks) modulo 2^20 */
  uint32_t push_early;
  uint32_t push_from;
  float learning_rate;
  /* Of a lookup: trusted[p] != 0: the subscriptions at partition p of the store hold (host memory, an element
   * for each partition). null: none do. */
  const uint8_t* trusted;
} HetDevUse;

typedef struct {
  uint32_t use; /* its table: index of a HetDevUse */
  uint64_t n;
  const int64_t* ids; /* in host memory, read before the function returns; HetDevGather, and HetDevSum after
                         a HetDevLookup, use the call's own */
  float* rows;        /* output of a lookup: n * dim, on the device; null: no output */
  const float* gradients; /* input of HetDevSum: n * dim, on the device */
  int has_padding;        /* ids equal to padding_id read zeros and learn nothing */
  int64_t padding_id;
} HetDevFeature;

typedef struct { /* at most 2^32 - 2 ids and 2^20 features; one use for each table, shared by its features */
  const HetDevUse* uses;
  uint32_t n_uses;
  const HetDevFeature* features;
  uint32_t n_features;
} HetDevBatch;

HET_DEV_EXPORT int HetDevCreateCall(HetDevContext* context, HetDevCall** call);
HET_DEV_EXPORT void HetDevDestroyCall(HetDevContext* context, HetDevCall* call);
/* Clears the call, including its own rows: to reuse it for another step, or because those rows are too
 * old. */
HET_DEV_EXPORT void HetDevResetCall(HetDevContext* context, HetDevCall* call);

#define HET_DEV_NO_BASE (-1)  /* the row is absent; from HetDevSum: or invalid */
#define HET_DEV_OLD_BASE (-2) /* the row is here, and must be fetched: it is invalid, or has moved */
typedef struct { /* unique (use, key) in any order; host memory, good until the next call with the context */
  uint64_t n;
  const uint32_t* use;
  const int64_t* keys;
  const int64_t* bases;  /* >= 0: the row is here, has this base, and must be checked */
  const uint64_t* reads; /* for each use: unique keys; only from HetDevLookup */
  const uint64_t* hits;  /* for each use: unique keys that were cached, invalid rows included */
} HetDevWanted;

/* Returns the cached rows about which the store need not be asked (core/cache/pull_rule.h): valid ones that
 * are subscribed at a trusted partition, or that have not moved if the use has no check. `training` counts as
 * a use of each row. Rows of the call itself count as cached, and are never subscribed. Later work on the
 * stream sees the rows. The call keeps the ids. */
HET_DEV_EXPORT int HetDevLookup(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                                int training, HetDevStream stream, HetDevWanted* wanted);

typedef struct { /* rows of one table from the store; host memory */
  uint32_t use;
  uint64_t n;
  const int64_t* keys;
  const int64_t* bases; /* >= 0 */
  const uint8_t* admit; /* 0: the call keeps an absent key's row */
  const float* rows; /* n * row_floats; fastest in memory from HetDevStage. null: the copies stay as they are,
                        and of the other arrays only `subscribed` is read */
  const uint8_t* subscribed; /* 1: the store names the row when it moves; null: none of them */
} HetDevAnswer;

/* Returns page-locked memory of at least `bytes`, valid until the next HetDevStage with the context. Other
 * functions' results stay valid. */
HET_DEV_EXPORT int HetDevStage(HetDevContext* context, size_t bytes, void** memory);

typedef struct { /* exported updates of one table; host memory, valid until the next call with the context */
  uint32_t use;  /* 0 from HetDevTake */
  uint64_t n;
  const int64_t* keys;
  const uint32_t* ticks; /* each > 0 */
  const int64_t* clocks; /* of each row, with these ticks */
  const float* updates;  /* n * row_floats */
} HetDevUpdates;
typedef struct {
  uint32_t n; /* tables with updates */
  const HetDevUpdates* of;
  /* From HetDevInstall: subscribed rows that were evicted without an update, in any order. */
  uint64_t n_left;
  const uint32_t* left_uses;
  const int64_t* left_keys;
} HetDevExport;

/* A cached row becomes valid: x = own update on top of the given row, base = the given one. An absent row
 * enters its bucket or stays with the call, where it replaces the call's row for that key, if any. Each key
 * must occur once in the answers of a use that have rows. Then valid cached rows of answers without rows
 * become subscribed. `victims` are in order of keys. */
HET_DEV_EXPORT int HetDevInstall(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                                 const HetDevAnswer* answers, uint32_t n_answers, HetDevStream stream,
                                 HetDevExport* victims);
/* Writes the rows of positions that HetDevLookup left out or that were installed since. Keys that are still
 * absent: HET_DEV_INVALID. */
HET_DEV_EXPORT int HetDevGather(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                                HetDevStream stream);

typedef struct {
  uint64_t uniques;      /* keys that get a tick */
  uint64_t due;          /* keys of these whose update HetDevTick will export */
  uint64_t overdue;      /* keys of these whose update has more than one tick past the push bound */
  const uint8_t* active; /* for each feature: 1 if its gradient is not all zero */
  int non_finite;        /* a sum times scale is NaN or Inf */
  uint32_t bad_use;      /* of the first such key, by (use, key) */
  int64_t bad_key;
  const uint64_t* ticks; /* for each use: keys that get a tick; valid until the next call with the context */
} HetDevSummed;

/* Sums the gradients of each key over the features whose gradient is not all zero, times `scale`. `active`:
 * for each feature whether it counts; null: computed here. If wanted->n > 0 nothing was summed, because rows
 * are absent or invalid: install their keys in this call and call HetDevSum again; bases are
 * HET_DEV_NO_BASE. Changes no row. If the call has looked up since it was reset, this batch must have the
 * same features: its ids are the call's, and if that was for training the rows that the lookup has found are
 * used, unless they may have moved. */
HET_DEV_EXPORT int HetDevSum(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, float scale,
                             const uint8_t* active, HetDevStream stream, HetDevWanted* wanted,
                             HetDevSummed* summed);
/* Ticks every key that HetDevSum has summed. HetDevSum must have been the last call with the context, with
 * this batch, and have found no NaN or Inf. Exports, in order of keys, the updates of rows with more ticks
 * than their push bound and of the call's own rows: base += ticks. Does not wait: how many updates there are
 * is known, and HetDevCollect, as the next call with the context, waits until they are there. */
HET_DEV_EXPORT int HetDevTick(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                              HetDevStream stream, HetDevExport* due);
/* Waits for HetDevTick. Its updates are valid until the next other call with the context. */
HET_DEV_EXPORT int HetDevCollect(HetDevContext* context);

/* --- between steps */

/* Exports the updates of the max_rows dirty rows with the lowest keys, in order; the rows stay.
 * updates->n == 0: no row is dirty. */
HET_DEV_EXPORT int HetDevTake(HetDevContext* context, HetDevTable* table, uint64_t max_rows,
                              HetDevStream stream, HetDevExport* updates);

enum {
  HET_DEV_DROP = 0,       /* drops rows and their updates */
  HET_DEV_DROP_CLEAN = 1, /* drops rows without ticks */
  HET_DEV_INVALIDATE = 2, /* marks bases as unknown */
  /* These change no row, and where the rows are: the calls do not wait. */
  HET_DEV_MOVED = 3,       /* the store has named the rows: those that are subscribed have moved */
  HET_DEV_UNSUBSCRIBE = 4, /* the store will name them no longer: subscribed ones are checked again */
};
/* Does this to the rows of partitions with partitions[p] != 0 (null: all). *discarded: ticks lost. */
HET_DEV_EXPORT int HetDevForget(HetDevContext* context, HetDevTable* table, int what,
                                const uint8_t* partitions, HetDevStream stream, uint64_t* discarded);
/* Does it to the rows of these keys (host memory); absent keys are ignored. */
HET_DEV_EXPORT int HetDevForgetKeys(HetDevContext* context, HetDevTable* table, int what, const int64_t* keys,
                                    uint64_t n, HetDevStream stream, uint64_t* discarded);

/* Reads one row, for tests: values and, if ticks > 0, update (row_floats each, host memory, either may
 * be null). found == 0: it is not cached. */
typedef struct {
  int found;
  int invalid;
  int64_t base;
  uint32_t ticks;
  uint64_t stamp;
  uint32_t frequency;
  int subscribed;
  int moved;
} HetDevRowState;
HET_DEV_EXPORT int HetDevInspect(HetDevContext* context, HetDevTable* table, int64_t key, HetDevStream stream,
                                 HetDevRowState* state, float* row, float* update);

/* For tests: the n-th allocation of device or page-locked memory from now fails, once; 0: none fails. */
HET_DEV_EXPORT void HetDevFailAllocation(HetDevContext* context, uint64_t n);

#ifdef __cplusplus
} /* extern "C" */
#endif
