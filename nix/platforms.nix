/*
  The platforms that bundles are built for, and what Nix, Debian and the ELF loader call them.

  Type: { <platform> = { nix, multiarch, loader : String }; }
  Example: (import ./platforms.nix)."linux/amd64".nix => "x86_64-linux"
*/
{
  "linux/amd64" = {
    nix = "x86_64-linux";
    multiarch = "x86_64-linux-gnu";
    loader = "ld-linux-x86-64.so.2";
  };
  "linux/arm64" = {
    nix = "aarch64-linux";
    multiarch = "aarch64-linux-gnu";
    loader = "ld-linux-aarch64.so.1";
  };
}
