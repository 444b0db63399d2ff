/*
  Run the tests of a library; the value lists what failed, with what was got.

  Every function of the library must have tests under its name.

  Type: { library, tests : { <function> = { <test> = { expr; expected; } } } } -> [{ test, … }]
  Example: run { library = { id = x: x; }; tests.id.testOne = { expr = 1; expected = 1; }; } => [ ]
*/
{ library, tests }:
let
  inherit (builtins)
    attrNames
    concatMap
    filter
    ;
  check =
    test:
    { expr, expected }:
    if expr == expected then
      [ ]
    else
      [
        {
          inherit test expected;
          got = expr;
        }
      ];
  of = function: concatMap (test: check test tests.${function}.${test}) (attrNames tests.${function});
  untested = filter (function: (tests.${function} or { }) == { }) (attrNames library);
in
map (function: { test = "${function} has no tests"; }) untested ++ concatMap of (attrNames tests)
