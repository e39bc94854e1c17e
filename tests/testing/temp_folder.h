// A private folder that the destructor deletes.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace het::testing {

class TempFolder {
 public:
  TempFolder() {
    char path[] = "/tmp/het_files_XXXXXX";
    path_ = mkdtemp(path);
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace het::testing
