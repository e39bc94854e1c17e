#include "het_tf/ext/serving/cc/serve/serve_file.h"

#include "het_tf/core/base/checksum.h"
#include "het_tf/ext/serving/cc/open_objects.h"

namespace het::serve {
namespace {

constexpr MappedFile::Kind kServingFiles = {
    "serving file",
    "a SavedModel keeps its files under assets/: copy or move it as a whole",
    "copy it again, or export the model again",
    "export the model again, or load it with the het_tf that wrote it",
    Code::kDataLoss,
    Code::kFailedPrecondition};

// Never destroyed: kernels may outlive static destructors.
auto& Files() {
  static auto* files = new OpenObjects<MappedFile::Identity, const ServeFile>();
  return *files;
}

}  // namespace

Result<std::shared_ptr<const ServeFile>> ServeFile::Open(const std::string& path) {
  HET_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path, kServingFiles));
  const MappedFile::Identity identity = mapped.identity();
  return Files().Get(identity, [&]() -> Result<std::shared_ptr<const ServeFile>> {
    std::shared_ptr<ServeFile> file(new ServeFile(std::move(mapped)));
    HET_RETURN_IF_ERROR(file->Read());
    return std::shared_ptr<const ServeFile>(std::move(file));
  });
}

Status ServeFile::Read() {
  HET_RETURN_IF_ERROR(file_.ReadHead(kMagic, kVersion, &header_));
  const Header& h = header_;  // the checksum catches accidents, the checks below anything else
  if (!IsRowType(h.row_type) || h.unknown > Unknown::kZeros || h.dim == 0 || h.dim > TableSchema::kMaxDim ||
      h.row_bytes != RowBytes(h.row_type, h.dim)) {
    return Damaged("its header describes no rows");
  }
  if (h.rows > kMaxRows || h.buckets == 0 || h.probes == 0 || h.probes > kMaxProbes ||
      h.spec_bytes > kMaxSpecBytes) {
    return Damaged("its header names parts that are not in it");
  }
  HET_ASSIGN_OR_RETURN(rows_, file_.Section<uint8_t>(h.rows_offset, h.rows * h.row_bytes));
  HET_ASSIGN_OR_RETURN(buckets_, file_.Section<Bucket>(h.buckets_offset, h.buckets));
  return ReadSpec();
}

Status ServeFile::ReadSpec() {
  HET_ASSIGN_OR_RETURN(const auto spec, file_.Section<char>(header_.spec_offset, header_.spec_bytes));
  if (Checksum::Of(spec.data(), spec.size()) != header_.spec_checksum) {
    return Damaged("the checksum of its table's spec is wrong");
  }
  auto parsed = ParseTableSpec(std::string(spec.data(), spec.size()));
  if (!parsed.ok()) return Damaged(parsed.status().message());
  auto schema = TableSchema::Create(parsed.value());
  if (!schema.ok()) return Damaged(schema.status().message());
  schema_ = std::move(schema.value());
  return schema_->dim() == header_.dim ? Status() : Damaged("its rows do not have the dim of its table");
}

Status ServeFile::Verify() const {
  const struct {
    const char* what;
    const void* data;
    uint64_t bytes;
    uint64_t checksum;
  } parts[] = {{"rows", rows_.data(), rows_.size(), header_.rows_checksum},
               {"index", buckets_.data(), buckets_.size() * sizeof(Bucket), header_.buckets_checksum}};
  for (const auto& part : parts) {
    if (Checksum::Of(part.data, part.bytes) != part.checksum) {
      return Damaged(std::string("the checksum of its ") + part.what + " is wrong");
    }
  }
  return Status();
}

void ServeFile::FillUnknown(Key key, float* values) const {
  if (header_.unknown == Unknown::kZeros) {
    std::fill_n(values, header_.dim, 0.0f);
  } else {
    schema_->InitValue(key, values);
  }
}

}  // namespace het::serve
