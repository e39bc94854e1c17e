#include "het_tf/ext/serving/capi/follow.h"

#include "het_tf/capi/answer.h"
#include "het_tf/ext/serving/cc/follow/followed_model.h"

int HetFollowStats() {
  return het::Answer([&] {
    het::Text() = het::follow::FollowedModel::AllStats();
    return het::Status();
  });
}
