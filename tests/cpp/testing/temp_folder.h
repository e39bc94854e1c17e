// A folder of one's own that goes with the object.
#ifndef HET_TESTS_CPP_TESTING_TEMP_FOLDER_H_
#define HET_TESTS_CPP_TESTING_TEMP_FOLDER_H_

#include <string>

namespace het::testing {

class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace het::testing

#endif  // HET_TESTS_CPP_TESTING_TEMP_FOLDER_H_
