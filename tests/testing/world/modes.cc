#include "tests/testing/world/modes.h"

#include <algorithm>

#include "tests/testing/random.h"

namespace het::testing {
namespace {

// A random stream for this seed and name, independent of other names.
Random Lot(uint64_t seed, const char* name) { return Random(HashName(name) ^ Mix64(seed)); }

template <typename T>
T Pick(uint64_t seed, const char* name, const std::vector<T>& of) {
  return Lot(seed, name).Pick(of);
}

// Counting worlds hold integers. 4 bits can represent those up to 7, so only kMostUnsentInt4 ticks may be
// unsent, and the gradient's other element is 0 or 1.
constexpr int64_t kMostUnsentInt4 = 6;

// The bounds of het_tf.Cache() with the tables' default optimizer or AdaGrad; counting tables have sgd. One
// worker has HET's bounds, of which 4 bits can represent kMostUnsentInt4.
void SetDefault(uint64_t seed, WorldConfig* c) {
  const CacheConfig standard;
  c->is_default = true;
  c->cache.policy = standard.policy;
  c->cache.checks = standard.checks;
  c->cache.wire = RowFormat::kInt4;
  const int64_t staleness = c->workers == 1 ? kMostUnsentInt4 : CacheConfig::kStaleness;
  const StalenessBounds bounds =
      StalenessBounds::Of(Pick<double>(seed, "decay", {1, 2, 1e9}), staleness, c->workers);
  c->cache.pull_bound = bounds.pull;
  c->cache.push_bound = bounds.push;
}

void SetBounds(uint64_t seed, WorldConfig* c) {
  const bool int4 = c->cache.wire == RowFormat::kInt4;
  const std::vector<int64_t> pushes =
      int4 ? std::vector<int64_t>{0, 1, 4, kMostUnsentInt4} : std::vector<int64_t>{0, 1, 4, 10, kUnbounded};
  if (Lot(seed, "bounds").Chance(0.3)) {
    const auto early = Pick<uint32_t>(seed, "early", {0, 1, 2});
    const auto from = Pick<uint32_t>(seed, "from", {0, 6, 25});
    c->cache.pull_bound = Bound(Pick<int64_t>(seed, "pull", {1, 3, 12}),
                                Pick<uint32_t>(seed, "pull of age", {1, 2, 5}), early, from);
    c->cache.push_bound = Bound(Pick<int64_t>(seed, "push", {0, 1, 4, int4 ? kMostUnsentInt4 : 10}),
                                Pick<uint32_t>(seed, "push of age", {1, 3, 8}), early, from);
    return;
  }
  const auto pull = Pick<int64_t>(seed, "pull", {0, 1, 4, 10, kUnbounded});
  const auto push = Pick<int64_t>(seed, "push", pushes);
  const bool both = Lot(seed, "one bound").Chance(0.5) && (!int4 || pull <= kMostUnsentInt4);
  c->cache.pull_bound = pull;
  c->cache.push_bound = both ? pull : push;
}

void SetDurability(uint64_t seed, ClientConfig* client) {
  client->durability = Pick<Durability>(
      seed, "durability", {Durability::kApplied, Durability::kCheckpoint, Durability::kReplicated});
  if (client->durability != Durability::kReplicated) return;
  client->replica_interval = Pick<double>(seed, "replica interval", {0, 0.2});
  client->keep_bytes = Pick<size_t>(seed, "kept bytes", {2000, size_t{1} << 30, size_t{1} << 30});
}

std::string NameOf(const Bound& bound) {
  if (bound.every != 0) return "by age";
  return bound == kUnbounded ? "unbounded" : bound == 0 ? "exact" : "absolute";
}

}  // namespace

WorldConfig RandomConfig(uint64_t seed, bool is_default) {
  WorldConfig c;
  c.seed = seed;
  c.workers = Pick<uint32_t>(seed, "workers", {1, 2, 2, 3});
  c.devices = std::min(c.workers, Pick<uint32_t>(seed, "devices", {0, 0, 0, 1, 3}));
  c.partitions = Pick<uint32_t>(seed, "partitions", {1, 3, 4, 64});
  c.shards = Pick<uint32_t>(seed, "shards", {0, 1, 2});
  if (c.shards > c.partitions) c.shards = 0;
  c.tables = Pick<uint32_t>(seed, "tables", {1, 1, 2, 3});
  c.age = Pick<uint32_t>(seed, "age", {0, 0, 12, 24});
  c.cache.capacity = Pick<size_t>(seed, "capacity", {0, 1, 3, 8, 1000});
  c.cache.write_back_rows = Pick<size_t>(seed, "write back", {0, 2, 1000});
  c.stored = Pick<Stored>(seed, "stored", {Stored::kFloat32, Stored::kBfloat16, Stored::kInt8});
  c.most_held = Pick<size_t>(seed, "held", {3, 12, 1000, 1000});
  c.client.max_read_bytes = Pick<size_t>(seed, "read bytes", {100, kMostReadBytes, kMostReadBytes});
  if (Lot(seed, "names").Chance(0.6)) c.client.far_keys = 0;
  const double fault = Pick<double>(seed, "faults", {0, 0, 0.03, 0.05});
  if (fault > 0) c.faults = Faults::Some(fault);
  c.failovers = Lot(seed, "failovers").Chance(0.4);
  SetDurability(seed, &c.client);
  c.operators = Pick<Operators>(seed, "operators",
                                {Operators::kNone, Operators::kNone, Operators::kRows, Operators::kTables});
  if (c.operators == Operators::kRows) {
    c.limits = TableLimits();
    c.limits->ttl = 100;
    c.limits->min_count = 3;
    c.limits->min_count_ttl = 50;
  }
  if (Lot(seed, "budget").Chance(0.3)) {
    c.cache.layer = 1;
    c.cache.layer_bytes = c.tables * c.cache.capacity * Lines::Bytes(c.workers + 1);
  }
  c.cache.push_max_age =
      Pick<std::optional<double>>(seed, "push max age", {std::nullopt, std::nullopt, 0.2, 3.0});
  c.stream = Pick<StreamMode>(seed, "stream",
                              {StreamMode::kNone, StreamMode::kNone, StreamMode::kPlanned,
                               StreamMode::kOnDemand, StreamMode::kOnDemand});
  if (c.stream != StreamMode::kNone) c.devices = 0;
  c.summed = c.stream != StreamMode::kNone && Lot(seed, "summed").Chance(0.4);
  c.kept = c.stream != StreamMode::kNone && Lot(seed, "kept").Chance(0.6);
  // Finding out what a push has swept asks a device, which sends; an engine also sweeps between pushes.
  if (c.operators == Operators::kRows && c.devices == 0 && c.stream == StreamMode::kNone)
    c.limits->max_rows = Pick<uint64_t>(seed, "max rows", {0, 6});
  c.many_keys = c.devices > 0 && Lot(seed, "keys").Chance(0.3);
  c.early = c.stream == StreamMode::kNone && c.devices < c.workers && Lot(seed, "early").Chance(0.5);
  if (is_default || Lot(seed, "default").Chance(0.25)) {
    SetDefault(seed, &c);
  } else {
    c.cache.policy = Pick<Policy>(seed, "policy", {Policy::kLru, Policy::kLfu});
    c.cache.checks = Pick<Checks>(seed, "checks", {Checks::kNotified, Checks::kNotified, Checks::kAsked});
    c.cache.wire = Pick<RowFormat>(
        seed, "wire", {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kInt8, RowFormat::kInt4});
    if (c.devices == c.workers) c.cache.wire = RowFormat::kFloat32;
    SetBounds(seed, &c);
  }
  return c;
}

Modes ModesOf(const WorldConfig& c) {
  const auto of = [](bool is, const char* yes, const char* no) { return std::string(is ? yes : no); };
  const bool all_on_devices = c.devices == c.workers;
  return {
      {"default", of(c.is_default, "yes", "no")},
      {"workers", std::to_string(c.workers)},
      {"place", c.devices == 0 ? "host" : of(all_on_devices, "devices", "both")},
      {"lookups", of(c.early, "early", "in their step")},
      {"bounds", NameOf(c.cache.pull_bound)},
      {"wire", RowFormatName(c.cache.wire)},
      {"checks", ChecksName(c.cache.checks)},
      {"faults", of(c.faults.delay > 0, "some", "none")},
      {"failovers", of(c.failovers, "some", "none")},
      {"durability", c.client.durability == Durability::kApplied
                         ? "applied"
                         : of(c.client.durability == Durability::kCheckpoint, "checkpoint", "replicated")},
      {"operators",
       c.operators == Operators::kNone ? "none" : of(c.operators == Operators::kRows, "rows", "tables")},
      {"max_rows", of(c.limits && c.limits->max_rows != 0, "some", "none")},
      {"push_max_age", of(c.cache.push_max_age.has_value(), "some", "none")},
      {"policy", PolicyName(c.cache.policy)},
      {"capacity", c.cache.capacity == 0 ? "none" : of(c.cache.capacity < 12, "evicts", "all rows")},
      {"budget", of(c.cache.layer == 0, "of each table", "of all, which moves")},
      {"rows", of(c.age == 0, "new", "aged")},
      {"stored", StoredName(c.stored)},
      {"names", of(c.client.far_keys == 0, "of all keys", "of far keys")},
      {"stream",
       c.stream == StreamMode::kNone ? "none" : of(c.stream == StreamMode::kPlanned, "planned", "on demand")},
      {"gradients", of(c.summed, "summed", "of each worker")},
      {"updates", of(c.kept, "of kept gradients", "at once")},
      {"tables", of(c.tables == 1, "one", "several")},
      {"partitions", c.partitions == 1 ? "one" : of(c.partitions <= 16, "several", "in groups")},
  };
}

}  // namespace het::testing
