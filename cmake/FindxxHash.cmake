# The header of xxHash (Debian: libxxhash-dev) as xxHash::headers; no library of it is linked.
find_path(XXHASH_INCLUDE_DIR xxhash.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(xxHash REQUIRED_VARS XXHASH_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "xxHash is missing. Remedy: apt-get install libxxhash-dev")
if(xxHash_FOUND AND NOT TARGET xxHash::headers)
  add_library(xxHash::headers INTERFACE IMPORTED)
  set_target_properties(xxHash::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${XXHASH_INCLUDE_DIR}")
endif()
