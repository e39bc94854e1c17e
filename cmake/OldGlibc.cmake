# HET_GLIBC: libraries that run where glibc is as old as that, whatever the compiler here links with. They carry
# libstdc++ themselves; libgcc_s, which every such system has, unwinds exceptions.
set(HET_GLIBC "" CACHE STRING "The oldest glibc that the libraries shall run with, such as 2.28; '' is this machine's")
set(HET_CXX_LIBRARY stdc++)
if(NOT HET_GLIBC)
  return()
endif()
set(HET_CXX_LIBRARY -l:libstdc++.a)
set(_old_glibc "${PROJECT_BINARY_DIR}/old_glibc")
execute_process(
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/old_glibc/link_with_old_glibc.py" "${HET_GLIBC}"
          "${_old_glibc}"
  COMMAND_ERROR_IS_FATAL ANY)
string(APPEND CMAKE_SHARED_LINKER_FLAGS " -nodefaultlibs")
string(APPEND CMAKE_MODULE_LINKER_FLAGS " -nodefaultlibs")
string(APPEND CMAKE_CXX_STANDARD_LIBRARIES
  " ${_old_glibc}/compat.o -l:libstdc++.a -lgcc_s -lgcc ${_old_glibc}/libpthread.so.0"
  " ${_old_glibc}/libdl.so.2 ${_old_glibc}/libm.so.6 ${_old_glibc}/libc.so.6 -l:ld-linux-x86-64.so.2")
