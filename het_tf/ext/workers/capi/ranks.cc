#include "het_tf/ext/workers/capi/ranks.h"

#include <cstring>

#include "het_tf/core/base/answer.h"
#include "het_tf/core/base/interrupt.h"
#include "het_tf/ext/workers/cc/mesh.h"
#include "het_tf/ext/workers/cc/reduce.h"

namespace het {
namespace {

// Runs body(mesh) -> Status.
template <typename Body>
int WithMesh(const Body& body) {
  const Interrupts interrupts(Interrupts::By::kFunction);
  return Answer([&]() -> Status {
    HET_ASSIGN_OR_RETURN(const std::shared_ptr<Mesh> mesh, ConnectedMesh());
    return body(mesh.get());
  });
}

}  // namespace
}  // namespace het

int HetJoinRanks(int64_t rank, int64_t size, const int64_t* sockets, double timeout) {
  return het::Answer([&] {
    std::vector<int> descriptors(sockets, sockets + size);
    het::SetMesh(std::make_shared<het::Mesh>(static_cast<uint32_t>(rank), std::move(descriptors), timeout));
    return het::Status();
  });
}

int HetLeaveRanks() {
  return het::Answer([] {
    het::SetMesh(nullptr);
    return het::Status();
  });
}

int HetSumOverRanks(const char* label, int64_t mean, int64_t bytes_each, void* values, int64_t count) {
  return het::WithMesh([&](het::Mesh* mesh) {
    const auto size = static_cast<size_t>(count);
    if (bytes_each == sizeof(float)) {
      return het::SumOverRanks(mesh, label, mean != 0, static_cast<float*>(values), size);
    }
    return het::SumOverRanks(mesh, label, mean != 0, static_cast<double*>(values), size);
  });
}

int HetGatherFromRanks(const char* label, const char* what, const uint8_t* data, int64_t* bytes,
                       void** received) {
  return het::WithMesh([&](het::Mesh* mesh) -> het::Status {
    auto all = std::make_unique<het::Bytes>();
    HET_RETURN_IF_ERROR(
        het::GatherFromRanks(mesh, label, what, {data, static_cast<size_t>(*bytes)}, all.get()));
    *bytes = static_cast<int64_t>(all->size());
    *received = all.release();
    return het::Status();
  });
}

void HetTakeReceived(void* received, uint8_t* to) {
  const std::unique_ptr<het::Bytes> bytes(static_cast<het::Bytes*>(received));
  if (!bytes->empty()) std::memcpy(to, bytes->data(), bytes->size());
}
