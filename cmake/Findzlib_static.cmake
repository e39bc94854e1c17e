# The static library of zlib (Debian: zlib1g-dev) as zlib::static. Static, because TensorFlow's libraries have a zlib
# of theirs and export it: what our library does not carry would be taken from there.
find_path(ZLIB_INCLUDE_DIR zlib.h)
find_library(ZLIB_STATIC_LIBRARY libz.a)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(zlib_static REQUIRED_VARS ZLIB_STATIC_LIBRARY ZLIB_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "zlib is missing. Remedy: apt-get install zlib1g-dev")
if(zlib_static_FOUND AND NOT TARGET zlib::static)
  add_library(zlib::static STATIC IMPORTED)
  set_target_properties(zlib::static PROPERTIES
    IMPORTED_LOCATION "${ZLIB_STATIC_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ZLIB_INCLUDE_DIR}")
endif()
