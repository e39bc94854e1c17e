#include "het_tf/ext/workers/capi/ranks.h"

#include "het_tf/core/base/answer.h"
#include "het_tf/ext/workers/cc/mesh.h"

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
