// The state of a load: whose the tables are, and what is refused meanwhile.
#include "het_tf/core/engine/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "het_tf/core/store/local_service.h"
#include "het_tf/core/store/local_store.h"

namespace het {
namespace {

using ::testing::HasSubstr;

class LoaderTest : public ::testing::Test {
 protected:
  Status Begin(const std::string& who) {
    return loader_.Begin({who, 60}, [this] { ++emptied_; });
  }
  Status Commit() {
    return loader_.Commit([](const std::function<Status()>& commit) { return commit(); });
  }

  int alone_ = 0;
  int emptied_ = 0;
  LocalService service_{4, 0};
  LocalStore store_{&service_};
  Loader loader_{"space", &store_, /*remote=*/false, [this](const std::function<void()>& fn) {
                   ++alone_;
                   fn();
                 }};
};

TEST_F(LoaderTest, MeanwhileUseAndSavingAreRefused) {
  EXPECT_TRUE(loader_.RefuseWhileLoading().ok());
  EXPECT_EQ(loader_.CheckLoading().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(Begin("me").ok());
  EXPECT_EQ(emptied_, 1);
  EXPECT_EQ(alone_, 1);
  EXPECT_THAT(loader_.RefuseWhileLoading().message(), HasSubstr("being restored into namespace 'space'"));
  EXPECT_THAT(loader_.CheckNobodyLoads().message(), HasSubstr("loaded by 'me'"));
  EXPECT_TRUE(loader_.CheckLoading().ok());
  ASSERT_TRUE(Commit().ok());
  EXPECT_EQ(alone_, 2);
  EXPECT_TRUE(loader_.RefuseWhileLoading().ok());
  EXPECT_TRUE(loader_.CheckNobodyLoads().ok());
}

TEST_F(LoaderTest, OneLoaderAtATimeWhichMayBeginAgain) {
  ASSERT_TRUE(Begin("me").ok());
  EXPECT_TRUE(Begin("me").ok());
  EXPECT_EQ(emptied_, 1);
  EXPECT_THAT(Begin("you").message(), HasSubstr("loaded by 'me'; wait"));
  ASSERT_TRUE(loader_.Abort().ok());
  EXPECT_TRUE(Begin("you").ok());
}

TEST_F(LoaderTest, ACommitThatFailsLeavesTheTablesTheLoaders) {
  EXPECT_EQ(Commit().code(), Code::kFailedPrecondition) << "nobody has begun";
  ASSERT_TRUE(Begin("me").ok());
  EXPECT_EQ(loader_.Commit([](const std::function<Status()>&) { return InvalidArgument("no"); }).message(),
            "no");
  EXPECT_FALSE(loader_.RefuseWhileLoading().ok());
  ASSERT_TRUE(loader_.Abort().ok());
  EXPECT_TRUE(loader_.Abort().ok()) << "nobody loads";
  EXPECT_TRUE(loader_.RefuseWhileLoading().ok());
}

}  // namespace
}  // namespace het
