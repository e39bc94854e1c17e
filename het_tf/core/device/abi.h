/* The embedding cache in the memory of a device: a plain C ABI, the whole of what is known about it outside
 * of this folder.
 *
 * Two libraries implement it from one source: libhet_cuda.so (nvcc, a GPU) and libhet_cuda_host.so (the host
 * plays the device, for machines and tests without one). tests/cpp/device has a third one, written
 * as plainly as possible, that the two are compared with. Callers load one of them at run time.
 *
 *   HetDevLookup ──► rows of what is here and within its bound
 *        │ wanted: keys that are absent, and rows whose clock the store must look at
 *        ▼
 *   (the caller asks the store) ──► HetDevInstall ──► victims: updates of rows that had to leave
 *        │
 *        └► HetDevGather: the rows that HetDevLookup could not give
 *
 *   HetDevSum ──► sums of gradients per key
 *        │ wanted: rows that have left since the lookup; they are installed, and HetDevSum comes again
 *        ▼
 *   HetDevTick ──► one tick a key; due: updates past the push bound
 *
 * A row here is [value: dim floats | slots], and has
 *   base     the store's clock that it contains; its own updates that were given away are counted in
 *   ticks    of its own that were not given away (p), with their update (d) composed by the optimizer's rules
 *   stamp    number of the last training lookup that used it; frequency, for lfu
 *   flags    invalid: its base is not to be trusted; its value is fetched anew, its update stays
 * as in docs/protocol.md. Nothing here decides when a row is fetched, checked or pushed, but for who leaves a
 * full bucket.
 *
 * A table is buckets of 32 rows. A key belongs to one bucket; when that is full the row with the lowest score
 * goes:
 *   lru        (stamp, key)
 *   lfu        (frequency, stamp, key); frequencies are halved after 8 x capacity first uses in a step
 *   light_lfu  the same
 * Orders of keys, here and below, are those of unsigned numbers. The frequency of a row counts the training
 * lookups that used it, the one that brought it in included; light_lfu stops at 8, lfu at 65535. First uses
 * are rows here that a training lookup uses, and rows that enter; they are added up at the end of
 * HetDevLookup and HetDevInstall. No victims are rows whose stamp is at or above HetDevUse.pinned_from, and
 * rows that the same HetDevInstall is about. A key that may not enter, or finds nobody who may go, has its
 * row with the call: it is served from there, ticked there, and its update leaves with that tick. Ids that
 * occur in a call more often count once.
 *
 * Results are a function of the calls: two runs with the same inputs give the same bytes. Sums over the
 * occurrences of a key are taken in the order of features and of ids within one, as on the CPU, for keys that
 * occur up to 64 times in a call; of others partial sums over 64 consecutive occurrences each are added in
 * order.
 *
 * Concurrency: calls with one context come one after the other, whatever thread they come from; the caller
 * locks. Work is put on the stream that is given, whichever stream the calls before had: a call begins by
 * waiting for what they left. Functions that return results for the host have waited for their own stream.
 * A stream of another device is HET_DEV_INVALID. The device that the calling thread had chosen stays chosen.
 *
 * Memory: a function takes what it needs before it changes anything. After HET_DEV_OUT_OF_MEMORY all tables
 * are as they were. After HET_DEV_FAILED the device is lost, with what it held.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HET_DEV_EXPORT __attribute__((visibility("default")))
#define HET_DEV_ABI_VERSION 4

#ifdef __cplusplus
extern "C" {
#endif

typedef void* HetDevStream;                 /* cudaStream_t; null: the legacy default stream */
typedef struct HetDevContext HetDevContext; /* a device: scratch memory and staging buffers of calls */
typedef struct HetDevTable HetDevTable;     /* the cache of one table */
typedef struct HetDevCall HetDevCall;       /* what is kept of one step from its lookup to its tick */

enum {
  HET_DEV_OK = 0,
  HET_DEV_INVALID = 1,            /* an argument; the message names it, its value and the remedy */
  HET_DEV_OUT_OF_MEMORY = 2,      /* of the device */
  HET_DEV_OUT_OF_HOST_MEMORY = 3, /* page-locked or other */
  HET_DEV_NO_DEVICE = 4,
  HET_DEV_DRIVER_TOO_OLD = 5, /* the message says which driver there is and which one is needed */
  HET_DEV_FAILED = 6,         /* a launch or a copy; the message names the kernel */
};
/* The message of this thread's last call that did not answer HET_DEV_OK. */
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
/* HET_DEV_ABI_VERSION of the library. Touches no device. */
HET_DEV_EXPORT int HetDevAbiVersion(void);
/* HET_DEV_NO_DEVICE, HET_DEV_DRIVER_TOO_OLD: then abi_version, executor, built and the versions are filled in
 * all the same. */
HET_DEV_EXPORT int HetDevDescribe(int device, HetDevInfo* info);

HET_DEV_EXPORT int HetDevCreateContext(int device, HetDevContext** context);
/* Its tables and calls must be gone. Null is fine, as for all Destroy. */
HET_DEV_EXPORT void HetDevDestroyContext(HetDevContext* context);

/* Memory of the device, and copies, for tests, benchmarks, and callers whose ids are in host memory. Copies
 * have ended when the function returns. */
HET_DEV_EXPORT int HetDevMalloc(HetDevContext* context, size_t bytes, void** memory);
HET_DEV_EXPORT void HetDevFree(HetDevContext* context, void* memory);
HET_DEV_EXPORT int HetDevCopyIn(HetDevContext* context, void* device, const void* host, size_t bytes,
                                HetDevStream stream);
HET_DEV_EXPORT int HetDevCopyOut(HetDevContext* context, void* host, const void* device, size_t bytes,
                                 HetDevStream stream);
HET_DEV_EXPORT int HetDevSynchronize(HetDevContext* context, HetDevStream stream);

/* --- a table */

#define HET_DEV_MOST_ROWS UINT64_C(4294967264) /* 2^32 - 32: lists of rows are 32-bit */

enum { HET_DEV_LRU = 0, HET_DEV_LFU = 1, HET_DEV_LIGHT_LFU = 2 };
enum {
  HET_DEV_SGD = 0,              /* {} */
  HET_DEV_MOMENTUM = 1,         /* {momentum, nesterov (0 or 1)} */
  HET_DEV_RMSPROP = 2,          /* {rho, epsilon} */
  HET_DEV_ADAM = 3,             /* {beta_1, beta_2, epsilon} */
  HET_DEV_ADAGRAD = 4,          /* {initial_accumulator, epsilon} */
  HET_DEV_ROW_WISE_ADAGRAD = 5, /* {initial_accumulator, epsilon} */
  HET_DEV_FTRL = 6,             /* {l1, l2, beta, l2_shrinkage, initial_accumulator} */
};

typedef struct {
  const char* name;  /* for messages */
  uint64_t capacity; /* rows, 1 to HET_DEV_MOST_ROWS; rounded up to whole buckets of 32 */
  uint32_t dim;
  uint32_t row_floats; /* dim and the optimizer's slots (core/row/optimizer.h); checked */
  int policy;
  int optimizer;
  double params[8]; /* of the optimizer, in the order above */
  double l2;        /* as in core/row/schema.h */
  double max_norm;
  int keep_updates;    /* 0: push bounds are always 0, no memory for updates is taken */
  uint64_t table;      /* its id; it says where keys lie (core/wire/layout.h) */
  uint64_t hash_seed;  /* of the store: the hash of a key is that of core/base/hash.h */
  uint32_t partitions; /* of the store */
} HetDevTableConfig;

/* Bytes of device memory that the table will take. */
HET_DEV_EXPORT int HetDevTableBytes(const HetDevTableConfig* config, uint64_t* bytes);
/* HET_DEV_OUT_OF_MEMORY says how much it needs and how much is free. */
HET_DEV_EXPORT int HetDevCreateTable(HetDevContext* context, const HetDevTableConfig* config,
                                     HetDevTable** table);
HET_DEV_EXPORT void HetDevDestroyTable(HetDevContext* context, HetDevTable* table);

typedef struct {
  uint64_t capacity; /* as rounded */
  uint64_t bytes;    /* of device memory */
  uint64_t rows;
  uint64_t dirty; /* rows with ticks that were not given away */
  uint64_t invalid;
  uint64_t inserts; /* since it was made, as what follows */
  uint64_t evictions;
} HetDevTableState;
HET_DEV_EXPORT int HetDevState(HetDevContext* context, HetDevTable* table, HetDevStream stream,
                               HetDevTableState* state);

/* --- a step */

typedef struct { /* a table in this call */
  HetDevTable* table;
  int check;            /* rows that are here must be looked at by the store too */
  uint64_t stamp;       /* of this lookup: grows from training lookup to training lookup; below 2^32 */
  uint64_t pinned_from; /* rows with this stamp or a later one stay */
  int64_t push_bound;   /* INT64_MAX: unbounded */
  uint32_t push_every;  /* 0: push_bound holds for all rows; else the bound of a row is one tick for so
                           many of its age, which is (base + ticks) modulo 2^20, at most push_bound */
  float learning_rate;
} HetDevUse;

typedef struct {
  uint32_t use; /* its table: index of a HetDevUse */
  uint64_t n;
  const int64_t* ids;     /* on the device */
  float* rows;            /* out, of a lookup: n * dim, on the device; null: not wanted */
  const float* gradients; /* of HetDevSum: n * dim, on the device */
  int has_padding;        /* ids that are padding_id read zeros and learn nothing */
  int64_t padding_id;
} HetDevFeature;

typedef struct { /* at most 2^32 - 2 ids; a table has one use, whatever the number of its features */
  const HetDevUse* uses;
  uint32_t n_uses;
  const HetDevFeature* features;
  uint32_t n_features;
} HetDevBatch;

HET_DEV_EXPORT int HetDevCreateCall(HetDevContext* context, HetDevCall** call);
HET_DEV_EXPORT void HetDevDestroyCall(HetDevContext* context, HetDevCall* call);
/* Forgets what the call holds, rows of its own included: to be used for another step, or because its own rows
 * are too old by now. */
HET_DEV_EXPORT void HetDevResetCall(HetDevContext* context, HetDevCall* call);

#define HET_DEV_NO_BASE (-1)
typedef struct { /* unique (use, key) in any order; host memory, good until the next call with the context */
  uint64_t n;
  const uint32_t* use;
  const int64_t* keys;
  const int64_t* bases;  /* the row is here and has this base; HET_DEV_NO_BASE: absent, or invalid */
  const uint64_t* reads; /* for each use: different keys that occurred; of HetDevLookup alone */
  const uint64_t* hits;  /* and those of them that were here, invalid ones included */
} HetDevWanted;

/* Gives the rows of what is here, valid and needs no look; `training` counts as a use of each row. Rows of
 * the call itself count as here. */
HET_DEV_EXPORT int HetDevLookup(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                                int training, HetDevStream stream, HetDevWanted* wanted);

typedef struct { /* rows of one table that the store gave; host memory */
  uint32_t use;
  uint64_t n;
  const int64_t* keys;
  const int64_t* bases; /* >= 0 */
  const uint8_t* admit; /* 0: a key that is absent stays with the call */
  const float* rows;    /* n * row_floats; fastest when it is memory of HetDevStage */
} HetDevAnswer;

/* Page-locked memory for at least so many bytes, good until the next HetDevStage with the context. What other
 * functions gave stays good. */
HET_DEV_EXPORT int HetDevStage(HetDevContext* context, size_t bytes, void** memory);

typedef struct { /* updates of one table that left the device; host memory, good until the next call with the
                    context */
  uint32_t use;  /* of HetDevTake: 0 */
  uint64_t n;
  const int64_t* keys;
  const uint32_t* ticks; /* each > 0 */
  const int64_t* clocks; /* of each row, with these ticks */
  const float* updates;  /* n * row_floats */
} HetDevUpdates;
typedef struct {
  uint32_t n; /* tables with any */
  const HetDevUpdates* of;
} HetDevExport;

/* A row that is here: x = own update on top of the given row, base = the given one, valid. An absent one
 * enters its bucket (unless the call has a row for it, which is then replaced), or stays with the call. Of a
 * use, a key occurs once. `victims` are in order of keys. */
HET_DEV_EXPORT int HetDevInstall(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                                 const HetDevAnswer* answers, uint32_t n_answers, HetDevStream stream,
                                 HetDevExport* victims);
/* The rows of positions that HetDevLookup left out, and of those that were installed since. Keys that are
 * still absent: HET_DEV_INVALID. */
HET_DEV_EXPORT int HetDevGather(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                                HetDevStream stream);

typedef struct {
  uint64_t uniques;      /* keys that get a tick */
  uint64_t due;          /* of them, those whose update HetDevTick will give away */
  const uint8_t* active; /* for each feature: had its gradient anything but zeros? */
  int non_finite;        /* a sum times scale is NaN or Inf */
  uint32_t bad_use;      /* of the first such key, by (use, key) */
  int64_t bad_key;
  const uint64_t* ticks; /* for each use: keys that get one; good until the next call with the context */
} HetDevSummed;

/* Sums the gradients of each key over the features whose gradient is not all zero, times `scale`. `active`:
 * for each feature whether it counts; null: find out. Where wanted->n > 0 nothing was summed: the rows are
 * absent or invalid, their keys are to be installed (in this call), and then this is to be called again;
 * bases are HET_DEV_NO_BASE. Changes no row. */
HET_DEV_EXPORT int HetDevSum(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch, float scale,
                             const uint8_t* active, HetDevStream stream, HetDevWanted* wanted,
                             HetDevSummed* summed);
/* One tick for every key that HetDevSum has summed: it must have been the last call with the context, with
 * this batch, and have found no NaN or Inf. Updates of rows with more ticks than their push bound,
 * and of rows of the call, are given away, in order of keys: base += ticks. Does not wait where
 * summed.due was 0. */
HET_DEV_EXPORT int HetDevTick(HetDevContext* context, HetDevCall* call, const HetDevBatch* batch,
                              HetDevStream stream, HetDevExport* due);

/* --- out of a step */

/* Gives away the updates of the max_rows dirty rows with the lowest keys, in order; updates->n == 0: there
 * are none. Their rows stay. */
HET_DEV_EXPORT int HetDevTake(HetDevContext* context, HetDevTable* table, uint64_t max_rows,
                              HetDevStream stream, HetDevExport* updates);

enum {
  HET_DEV_DROP = 0,       /* the row goes, with its update */
  HET_DEV_DROP_CLEAN = 1, /* rows without ticks go */
  HET_DEV_INVALIDATE = 2, /* bases are no longer to be trusted */
};
/* Of rows in the partitions for which partitions[p] != 0 (null: of all). *discarded: ticks that went. */
HET_DEV_EXPORT int HetDevForget(HetDevContext* context, HetDevTable* table, int what,
                                const uint8_t* partitions, HetDevStream stream, uint64_t* discarded);
/* The same for rows of these keys (host memory); absent ones are fine. */
HET_DEV_EXPORT int HetDevForgetKeys(HetDevContext* context, HetDevTable* table, int what, const int64_t* keys,
                                    uint64_t n, HetDevStream stream, uint64_t* discarded);

/* One row, for tests: values, and its update where ticks > 0 (row_floats each, host memory, either may be
 * null). *found = 0: it is not here. */
typedef struct {
  int found;
  int invalid;
  int64_t base;
  uint32_t ticks;
  uint64_t stamp;
  uint32_t frequency;
} HetDevRowState;
HET_DEV_EXPORT int HetDevInspect(HetDevContext* context, HetDevTable* table, int64_t key, HetDevStream stream,
                                 HetDevRowState* state, float* row, float* update);

/* For tests: the n-th allocation of device memory from now on fails, once; 0: none does. */
HET_DEV_EXPORT void HetDevFailAllocation(HetDevContext* context, uint64_t n);

#ifdef __cplusplus
} /* extern "C" */
#endif
