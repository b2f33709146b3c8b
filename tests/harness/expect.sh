#!/bin/sh
# expect.sh CODE PATTERN COMMAND...: runs COMMAND, and fails unless its exit code is CODE and a line of what it prints
# matches PATTERN, an extended regular expression. With PASS_REGULAR_EXPRESSION ctest would ignore the exit code.
set -u
code=$1 pattern=$2
shift 2
printed=$("$@" 2>&1)
ended=$?
printf '%s\n' "$printed"
if [ "$ended" != "$code" ]; then
  echo "expected the exit code $code, found $ended"
  exit 1
fi
if ! printf '%s\n' "$printed" | grep -Eq -- "$pattern"; then
  echo "expected a line that matches: $pattern"
  exit 1
fi
