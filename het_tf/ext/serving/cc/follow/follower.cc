#include "het_tf/ext/serving/cc/follow/follower.h"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

namespace het::follow {
namespace {

// Between two calls of Step, if nothing happens: the source looks for silent servers.
constexpr double kMostPause = 1;

double SecondsSince(uint64_t time, uint64_t now) { return static_cast<double>(now - time) * 1e-9; }

}  // namespace

Result<std::unique_ptr<Follower>> Follower::Create(ChangeSource* source, LiveWriter* writer,
                                                   FollowerOptions options) {
  if (options.base.size() != source->partitions()) options.base.clear();
  std::unique_ptr<Follower> follower(new Follower(source, writer, std::move(options)));
  const Layout layout(source->partitions(), source->hash_seed());
  std::vector<Part>& parts = follower->parts_;
  parts.reserve(source->partitions());
  follower->by_partition_.resize(source->partitions());
  for (uint32_t partition = 0; partition < source->partitions(); ++partition) {
    parts.emplace_back(partition, layout, writer);
    if (parts.back().scan.tables().empty()) {
      parts.pop_back();
    } else {
      follower->by_partition_[partition] = &parts.back();
    }
  }
  if (parts.empty()) return FailedPrecondition("the export has no tables; there is nothing to follow");
  std::vector<Position> cut(parts.size());
  if (!follower->options_.base.empty() && writer->version().number == 0) {
    for (size_t i = 0; i < parts.size(); ++i) cut[i] = follower->options_.base[parts[i].partition];
  }
  follower->skew_ = Skew(cut);
  HET_RETURN_IF_ERROR(writer->SetPartitions(static_cast<uint32_t>(parts.size())));
  follower->ReadPositions();
  return follower;
}

void Follower::ReadPositions() {
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (!ParsePosition(writer_->position(static_cast<uint32_t>(i)), &part.since)) {
      part.since = options_.base.empty() ? Position() : options_.base[part.partition];
    }
    Restart(&part);
  }
}

// The next question is the first page of a scan.
void Follower::Restart(Part* part) {
  part->request = ChangesRequest();
  part->request.since = part->since;
  part->request.max_bytes = options_.max_page_bytes;
  part->request.format = options_.rows;
}

double Follower::Step() {
  Collect();
  uint64_t now = options_.clock();
  for (Part& part : parts_) {
    if (part.waits == Waits::kNothing && part.due <= now) Ask(&part);
  }
  Collect();  // a question that could not be sent is answered at once
  Flip();
  now = options_.clock();
  uint64_t next = After(now, kMostPause);
  for (const Part& part : parts_) {
    if (part.waits == Waits::kNothing) next = std::min(next, part.due);
  }
  return SecondsSince(now, std::max(now, next));
}

void Follower::Collect() {
  source_->Collect(&answers_);
  for (ChangeAnswer& answer : std::exchange(answers_, {})) {
    Part* const part = by_partition_[answer.partition];
    if (part != nullptr) Take(part, std::move(answer));
  }
}

void Follower::Ask(Part* part) {
  part->waits = Waits::kPage;
  part->asked = options_.clock();
  source_->AskPage(part->partition, part->request);
}

void Follower::Take(Part* part, ChangeAnswer answer) {
  const Waits waited = std::exchange(part->waits, Waits::kNothing);
  const uint64_t now = options_.clock();
  part->due = now;
  Status status = answer.status;
  try {
    if (status.ok() && waited == Waits::kPage) status = TakePage(part, std::move(answer.page));
    if (status.ok() && waited == Waits::kTables) status = TakeTables(part, answer.tables);
  } catch (const std::bad_alloc&) {
    Restart(part);  // what the scan has noted may be incomplete
    status = Status(Code::kResourceExhausted, "out of memory");
  }
  if (status.ok()) return;
  // The same page is asked for again: what was written before it is right.
  part->waits = Waits::kNothing;
  const double seconds = static_cast<double>(now) * 1e-9;
  part->backoff.Failed(options_.backoff, seconds, status.message(), /*jitter=*/0.5);
  part->due = After(now, std::max(0.0, part->backoff.not_before() - seconds));
}

Status Follower::TakePage(Part* part, ChangesPage page) {
  for (const Bytes& chunk : page.chunks) part->counts.bytes += chunk.size();
  if (part->request.cursor.begins() || !part->scan.Continues(page)) {
    part->scan.Begin(page);
    part->sent = part->asked;
    skew_.Begun(IndexOf(*part), page.start, part->sent);
    TellSkew();
    if (page.kind == ChangesKind::kWhole) {
      part->held = std::move(page);
      std::vector<std::string> names;
      for (size_t table : part->scan.tables()) names.push_back(writer_->schema(table).spec().name);
      source_->AskTables(part->partition, names);
      part->waits = Waits::kTables;
      return Status();
    }
  }
  return Write(part, page);
}

Status Follower::TakeTables(Part* part, const std::vector<std::optional<TableSpec>>& specs) {
  const ChangesPage page = std::exchange(part->held, {});
  Status wrong;
  for (size_t i = 0; i < part->scan.tables().size(); ++i) {
    const size_t table = part->scan.tables()[i];
    const TableSpec& wanted = writer_->schema(table).spec();
    if (i < specs.size() && specs[i] && SameValues(*specs[i], wanted)) {
      table_errors_.erase(table);
      continue;
    }
    std::string& error = table_errors_[table];
    error = "table '" + wanted.name + "' ";
    if (i < specs.size() && specs[i]) {
      HET_ASSIGN_OR_RETURN(const Schema there, TableSchema::Create(*specs[i]));
      error += "is another one at the store than in the export: " +
               DifferentFields(there->ToJson(), writer_->schema(table).ToJson()) + "; export the model again";
    } else {
      error += "does not exist at the store; restore it, or export a model without it";
    }
    wrong = FailedPrecondition(error);
  }
  if (!wrong.ok()) {
    Restart(part);  // a scan that began anew at a later page begins at the first one
    return wrong;
  }
  return Write(part, page);
}

Status Follower::Write(Part* part, const ChangesPage& page) {
  if (!page.chunks.empty() || page.kind != ChangesKind::kChanges) {
    skew_.Brought(IndexOf(*part), options_.clock());
    TellSkew();
  }
  HET_RETURN_IF_ERROR(part->scan.Add(page));
  part->backoff.Succeeded();
  if (!page.next.begins()) {
    part->request.cursor = page.next;
    return Status();
  }
  part->scan.Finish();
  part->since = page.start;
  part->counts.kind = page.kind;
  Restart(part);
  HET_RETURN_IF_ERROR(
      writer_->SetPosition(static_cast<uint32_t>(IndexOf(*part)), ToString(part->since), part->sent));
  part->seen = part->sent;
  ++part->counts.scans;
  part->due = After(part->sent, options_.poll);
  return Status();
}

void Follower::Flip() {
  std::vector<Reached> rows;
  rows.reserve(parts_.size());
  for (const Part& part : parts_) rows.push_back({part.partition, part.since, part.seen});
  const auto taken = versions_.Take(rows);
  if (!taken) return;
  const Status flipped = writer_->Flip(taken->version);
  flip_error_ = flipped.ok() ? "" : flipped.message();
  if (!flipped.ok()) return;
  std::vector<Position> cut;
  cut.reserve(parts_.size());
  for (const Part& part : parts_) cut.push_back(taken->cut[part.partition]);
  skew_.Flipped(cut);
  TellSkew();
}

void Follower::TellSkew() { writer_->SetSkew(skew_.Bound()); }

Status Follower::Offer(Version version, std::vector<Position> cut) {
  if (cut.size() != source_->partitions()) {
    return InvalidArgument("the cut of version " + std::to_string(version.number) + " has " +
                           std::to_string(cut.size()) + " positions, and the store has " +
                           std::to_string(source_->partitions()) + " partitions");
  }
  if (version.number <= writer_->version().number) return Status();
  versions_.Offer(std::move(version), std::move(cut), options_.clock());
  return Status();
}

Status Follower::RollBack(Version version, std::vector<Position> cut) {
  versions_.Clear();
  if (version.number >= writer_->version().number) return Offer(std::move(version), std::move(cut));
  HET_RETURN_IF_ERROR(writer_->Flip(version));  // rows reached its cut before they reached a later one's
  skew_.Forget();
  TellSkew();
  return Status();
}

bool Follower::caught_up() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.seen > 0; });
}

std::string Follower::Report() const {
  const uint64_t now = options_.clock();
  const auto age = [now](uint64_t seen) {
    return seen == 0 ? nlohmann::json() : nlohmann::json(SecondsSince(seen, std::max(now, seen)));
  };
  const auto failing = [now](const Backoff& backoff) {
    return backoff.failing() ? static_cast<double>(now) * 1e-9 - backoff.since() : 0.0;
  };
  nlohmann::json tables = nlohmann::json::object();
  for (size_t table = 0; table < writer_->tables(); ++table) {
    const auto error = table_errors_.find(table);
    tables[writer_->schema(table).spec().name] = {
        {"rows", writer_->rows(table)}, {"error", error == table_errors_.end() ? "" : error->second}};
  }
  nlohmann::json partitions = nlohmann::json::array();
  uint64_t rows = 0, removed = 0, bytes = 0;
  for (const Part& part : parts_) {
    rows += part.scan.rows();
    removed += part.scan.removed();
    bytes += part.counts.bytes;
    partitions.push_back({{"partition", part.partition},
                          {"server", source_->Where(part.partition)},
                          {"position", ToString(part.since)},
                          {"age", age(part.seen)},
                          {"kind", NameOf(part.counts.kind)},
                          {"scans", part.counts.scans},
                          {"rows", part.scan.rows()},
                          {"removed", part.scan.removed()},
                          {"bytes", part.counts.bytes},
                          {"error", part.backoff.reason()},
                          {"failing", failing(part.backoff)}});
  }
  nlohmann::json skew;
  if (const auto bound = skew_.Bound()) skew = static_cast<double>(*bound) * 1e-9;
  return nlohmann::json({{"version", writer_->version().number},
                         {"waiting", versions_.Numbers()},
                         {"age", age(writer_->seen())},
                         {"skew", skew},
                         {"caught_up", caught_up()},
                         {"rows", rows},
                         {"removed", removed},
                         {"bytes", bytes},
                         {"flip_error", flip_error_},
                         {"tables", tables},
                         {"partitions", partitions}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace het::follow
