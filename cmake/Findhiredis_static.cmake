# The static library of hiredis (Debian: libhiredis-dev) as hiredis::static. Static, so that nothing of it meets
# another hiredis in the process.
find_path(HIREDIS_INCLUDE_DIR hiredis/read.h)
find_library(HIREDIS_STATIC_LIBRARY libhiredis.a)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(hiredis_static REQUIRED_VARS HIREDIS_STATIC_LIBRARY HIREDIS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "hiredis is missing. Remedy: apt-get install libhiredis-dev")
if(hiredis_static_FOUND AND NOT TARGET hiredis::static)
  add_library(hiredis::static STATIC IMPORTED)
  set_target_properties(hiredis::static PROPERTIES
    IMPORTED_LOCATION "${HIREDIS_STATIC_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${HIREDIS_INCLUDE_DIR}")
endif()
