// Compares a row file with its entry in a manifest, and looks for what no save writes: a key in the file of
// another partition, a key twice, a clock or a float out of range.
//
// Memory: some megabytes; with `contents` also 8 bytes a key of one table.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "het_tf/core/wire/layout.h"
#include "het_tf/ext/checkpoint/cc/row_file.h"

namespace het {

struct VerifyRequest {
  struct Tensor {
    uint64_t rows = 0;
    std::string checksum;  // as Checksum::Text
  };
  // The manifest's entry.
  uint64_t bytes = 0;
  std::string header_checksum;
  std::map<std::string, Tensor> tensors;
  // Whether to look at keys and floats too; then the store's layout and the file's partitions.
  bool contents = false;
  Layout layout{1, 0};
  std::vector<uint32_t> partitions;
};

struct VerifiedFile {
  std::vector<std::string> faults;  // a line each, with the file's name
  std::vector<RowTable> tables;     // as in the file
};

// An error: the file cannot be read, is no row file, or is another one than the manifest's.
Result<VerifiedFile> VerifyRows(const std::string& path, const VerifyRequest& request);

}  // namespace het
