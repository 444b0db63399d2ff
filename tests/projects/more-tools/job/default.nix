{ agentix }:
let
  words = import ./words.nix;
  busybox = "${(agentix.seeds agentix.host).busybox}/bin/busybox";
in
{
  hello = derivation {
    name = "hello";
    inherit (agentix) system;
    builder = busybox;
    args = [
      "sh"
      "-c"
      ''
        ${busybox} mkdir -p $out/bin
        echo "#!${agentix.target.busybox}/bin/busybox sh
        echo ${words} \''${LD_LIBRARY_PATH-unset}" >$out/bin/hello
        ${busybox} chmod 755 $out/bin/hello
      ''
    ];
  };
}
