#include "het_tf/ext/serving/cc/follow/live_base.h"

#include <cstdio>

#include "het_tf/core/base/checksum.h"

namespace het::follow {

Result<Base> OpenBase(const std::vector<std::string>& files) {
  Base base;
  for (const std::string& path : files) {
    HET_ASSIGN_OR_RETURN(auto file, serve::ServeFile::Open(path));
    base.push_back(std::move(file));
  }
  return base;
}

uint64_t BaseChecksum(const Base& base) {
  std::vector<uint64_t> checksums;
  for (const auto& file : base) checksums.push_back(file->header().checksum);
  return Checksum::Of(checksums.data(), checksums.size() * sizeof(uint64_t));
}

std::string TableFileName(size_t table, uint64_t number) {
  char name[64];
  (void)std::snprintf(name, sizeof name, "rows-%03zu-%llu.live", table,
                      static_cast<unsigned long long>(number));
  return name;
}

uint64_t TableFileNumber(const std::string& name) {
  size_t table = 0;
  unsigned long long number = 0;
  if (std::sscanf(name.c_str(), "rows-%zu-%llu.live", &table, &number) != 2) return 0;
  return TableFileName(table, number) == name ? number : 0;
}

}  // namespace het::follow
