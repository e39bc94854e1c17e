# het_flags:   the compiler flags of everything we build.
# het_compile: the same with the sanitizers of HET_SANITIZE, but for UndefinedBehaviorSanitizer.
# het_undefined: that one, for libraries.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(HET_CCACHE ccache)
if(HET_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${HET_CCACHE}")
endif()

if(HET_MARCH STREQUAL "default")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    set(HET_MARCH_FLAG x86-64-v3)
  else()
    set(HET_MARCH_FLAG "")
  endif()
else()
  set(HET_MARCH_FLAG "${HET_MARCH}")
endif()

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

add_library(het_flags INTERFACE)
target_compile_options(het_flags INTERFACE -Wall -Wextra -ffunction-sections -fdata-sections)
if(HET_WERROR)
  target_compile_options(het_flags INTERFACE -Werror)
endif()
if(HET_MARCH_FLAG)
  target_compile_options(het_flags INTERFACE -march=${HET_MARCH_FLAG})
endif()
# No fused multiply-adds behind our back: the same row on every machine, and in the tests' references.
target_compile_options(het_flags INTERFACE -ffp-contract=off)
# Nobody reads errno after a square root; one that sets it cannot become SIMD code.
target_compile_options(het_flags INTERFACE -fno-math-errno)

add_library(het_compile INTERFACE)
target_link_libraries(het_compile INTERFACE het_flags)
add_library(het_undefined INTERFACE)

if(HET_SANITIZE)
  # UndefinedBehaviorSanitizer takes as long to compile as all the rest: tests of libraries do without it.
  string(REGEX REPLACE ",?undefined" "" _everywhere "${HET_SANITIZE}")
  target_compile_options(het_compile INTERFACE -fsanitize=${_everywhere} -fno-omit-frame-pointer)
  target_link_options(het_compile INTERFACE -fsanitize=${HET_SANITIZE})
  if(HET_SANITIZE MATCHES "undefined")
    target_compile_options(het_undefined INTERFACE -fsanitize=undefined -fno-sanitize-recover=all)
  endif()
endif()

# het_unity(TARGET): where CMAKE_UNITY_BUILD is on, the sources of a folder are compiled as one file. By folder and
# not by number: a new file changes nothing about which names of anonymous namespaces must differ. The folder's name
# is that in this tree, so that ccache knows what another clone has compiled.
function(het_unity target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder "${source}" DIRECTORY)
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${folder}")
    string(MAKE_C_IDENTIFIER "${folder}" group)
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}")
  endforeach()
endfunction()
