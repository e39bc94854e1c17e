# het_find_headers(TARGET HEADER PACKAGE VERSION SUBDIR)
#
# Finds a header-only library that comes as a PyPI package: first in Python3_EXECUTABLE's environment, then in the
# system. Makes the imported interface target TARGET; a missing one is a single line with the remedy.
function(het_find_headers target header package version subdir)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -c
            "import importlib.metadata as m; print(m.distribution('${package}').locate_file('${subdir}'))"
    OUTPUT_VARIABLE python_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  string(MAKE_C_IDENTIFIER "${package}_INCLUDE_DIR" variable)
  find_path(${variable} ${header} HINTS "${python_dir}")
  if(NOT ${variable})
    message(FATAL_ERROR
      "The headers of ${package} are missing. Remedy: ${Python3_EXECUTABLE} -m pip install ${package}==${version}")
  endif()
  message(STATUS "Found ${package}: ${${variable}}")
  add_library(${target} INTERFACE IMPORTED)
  # Imported headers are -isystem, so -Werror is ours alone.
  target_include_directories(${target} SYSTEM INTERFACE "${${variable}}")
endfunction()
