#include "tests/testing/temp_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace het::testing {

TempFolder::TempFolder() {
  char path[] = "/tmp/het_files_XXXXXX";
  path_ = mkdtemp(path);
}

TempFolder::~TempFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace het::testing
