/*
  What the functions of nix/ promise, as far as evaluation shows it.

  Type: { library } -> { library, tests : { <function> = { <test> = { expr; expected; } } } }
  Example: import ./run.nix (import ./. { library = import ../. { system = "x86_64-linux"; }; })
*/
{ library }:
let
  inherit (builtins)
    attrNames
    baseNameOf
    elem
    elemAt
    listToAttrs
    map
    match
    readDir
    toJSON
    tryEval
    ;
  inherit (library)
    artifact
    kit
    locked
    mkBundle
    pin
    platforms
    readLock
    seeds
    shell
    sources
    storeName
    ;

  # The index does not offer these by themselves; they have to keep their promises all the same.
  inner = {
    scripts = import ../scripts.nix;
    seed = import ../seed.nix { system = "x86_64-linux"; };
    step = import ../step.nix {
      system = "x86_64-linux";
      python = here.toolchain;
    };
    inherit (there)
      bundle
      busybox
      environment
      project
      toolchain
      tools
      wheel
      ;
  };

  fails = value: !(tryEval "${value}").success;
  inStore = name: value: match "/nix/store/[0-9a-z]{32}-${name}" "${value}" != null;

  six = {
    file = "six-1.17.0-py2.py3-none-any.whl";
    sha256 = "4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274";
  };
  lock = readLock ./fixtures/bundle.lock;

  tree = ./fixtures/tree;
  projects = [
    {
      name = "outer";
      path = ".";
    }
    {
      name = "inner";
      path = "inner";
    }
    {
      name = "nested";
      path = "only/nested";
    }
  ];
  found = sources.found {
    root = tree;
    inherit projects;
  };

  here = kit {
    pin = pin "debian-12";
    platform = library.host;
  };
  foreign = if library.host == "linux/amd64" then "linux/arm64" else "linux/amd64";
  there = kit {
    pin = pin "debian-12";
    platform = foreign;
  };
  wheel = there.wheel {
    package = "six";
    version = "1.17.0";
    inherit (six) file;
    wheel = artifact six;
  };
  six' = artifact six;
  # What a file in fixtures/asked gives, when nothing but this is there to be asked for.
  given =
    name: offered:
    map toString (
      import ../asked.nix
        (
          {
            agentix = throw "agentix";
            pkgs = throw "pkgs";
          }
          // offered
        )
        {
          file = ./fixtures/asked + "/${name}.nix";
          name = "a plugin's ${name}.nix";
        }
    );
  # Whatever it is for, the build machine's own programs make it.
  madeHere =
    name: made:
    inStore name made
    && made.system == here.toolchain.system
    && made.builder == "${here.toolchain}/bin/python3";
  build = locked {
    inherit lock;
    platform = "linux/amd64";
    sources = found;
  };

  tests = {
    artifact.testNamesTheFileThatWasAdded = {
      expr = "${artifact six}";
      expected = "/nix/store/7p9qg9k0c2w86ix3wynaxdnwwcf2f3m7-${six.file}";
    };

    described.testTellsWhatADerivationSaysOfItself = {
      expr = map (import ../described.nix) [
        { name = "hello-2.12"; }
        {
          name = "a-1";
          pname = "b";
          version = "3";
          meta.license = [
            { spdxId = "MIT"; }
            { fullName = "Ünfrei"; }
            { shortName = "unfree"; }
          ];
        }
        {
          name = "x";
          meta.license = "ISC";
        }
      ];
      expected = [
        {
          package = "hello";
          version = "2.12";
          kind = "nix";
          licences = [ ];
        }
        {
          package = "b";
          version = "3";
          kind = "nix";
          licences = [
            "MIT"
            "unfree"
          ];
        }
        {
          package = "x";
          version = "unknown";
          kind = "nix";
          licences = [ "ISC" ];
        }
      ];
    };

    seeds.testAreFoldersOfTheirName = {
      expr = inStore "busybox" (seeds "linux/arm64").busybox;
      expected = true;
    };

    system.testIsThatOfTheBuildMachine = {
      expr = platforms.${library.host}.nix;
      expected = library.system;
    };

    storeName.testKeepsWhatNixAdmits = {
      expr = storeName "libstdc++6_12.2.0-14_amd64.deb";
      expected = "libstdc++6_12.2.0-14_amd64.deb";
    };
    storeName.testReplacesTheRest = {
      expr = storeName "a~b%3a c.deb";
      expected = "a-b-3a-c.deb";
    };

    sources.testListedTakesExactlyWhatIsNamed = {
      expr = attrNames (
        readDir (
          sources.listed {
            root = toString tree;
            files = [ "inner/pyproject.toml" ];
          }
        )
      );
      expected = [ "inner" ];
    };
    sources.testFoundLeavesOutOtherProjectsAndTheFoldersTheyLeaveEmpty = {
      expr = attrNames (readDir found.outer);
      expected = [ "pyproject.toml" ];
    };
    sources.testFoundAndListedAgree = {
      expr = found.outer;
      expected = sources.listed {
        root = toString tree;
        files = [ "pyproject.toml" ];
      };
    };
    sources.testFoundHasEveryProject = {
      expr = attrNames found;
      expected = [
        "inner"
        "nested"
        "outer"
      ];
    };

    readLock.testGivesArtifactsTheirName = {
      expr = (lock.artifact six.file).file;
      expected = six.file;
    };
    readLock.testRefusesAnotherFormat = {
      expr = fails (readLock ./fixtures/of-another-format.lock).name;
      expected = true;
    };
    readLock.testRefusesALockWithoutAKey = {
      expr = fails (readLock ./fixtures/without-keys.lock).name;
      expected = true;
    };
    readLock.testRefusesAnArtifactThatItLacks = {
      expr = fails (lock.artifact "seven.whl").file;
      expected = true;
    };
    readLock.testRefusesAPlatformThatItLacks = {
      expr = fails (toJSON (lock.platform "linux/riscv64"));
      expected = true;
    };
    readLock.testRefusesAPlatformForWhichThereIsNoBundle = {
      expr = fails (toJSON (lock.platform "linux/arm64"));
      expected = true;
    };

    pin.testReadsAToolchain = {
      expr = (pin "debian-12").python;
      expected = "3.11";
    };
    pin.testRefusesAnUnknownToolchain = {
      expr = fails (pin "debian-7").name;
      expected = true;
    };

    platforms.testEachIsPinned = {
      expr = attrNames (pin "debian-13").packages;
      expected = attrNames platforms;
    };

    host.testIsThePlatformOfTheSystem = {
      expr = (import ../. { system = "aarch64-linux"; }).host;
      expected = "linux/arm64";
    };
    host.testRefusesOtherSystems = {
      expr = fails (import ../. { system = "riscv64-linux"; }).host;
      expected = true;
    };

    sources.testFoundTakesFromElsewhereOnlyWhatLeadsOut = {
      expr = sources.found {
        root = tree + "/inner";
        projects = [
          {
            name = "inner";
            path = ".";
          }
          {
            name = "nested";
            path = "../where/it/was";
          }
        ];
        elsewhere = {
          inner = tree;
          nested = tree + "/only/nested";
        };
      };
      expected = {
        inherit (found) inner nested;
      };
    };

    shell.testHasWhatIsLookedFor = {
      expr =
        let
          name = name: { inherit name; };
          names = [
            "bubblewrap"
            "git"
            "gnumake"
            "gnupg"
            "python3"
            "skopeo"
            "uv"
          ];
          given = listToAttrs (
            map (each: {
              name = each;
              value = name each;
            }) names
          );
        in
        map (each: each.name) (shell { pkgs = given // { mkShellNoCC = args: args.packages; }; });
      expected = [
        "bubblewrap"
        "git"
        "gnumake"
        "gnupg"
        "python3"
        "skopeo"
        "uv"
      ];
    };

    scripts.testTakesExactlyWhatIsNamed = {
      expr = attrNames (readDir (inner.scripts [ "step.py" ]));
      expected = [ "step.py" ];
    };

    seed.testIsTheFolderThatWasAdded = {
      expr = "${
        inner.seed {
          store = "busybox";
          sha256 = "494cdad037cf7d0a75ee816fc060b92663de1309602aff43c2f9ce55dade4c40";
        }
      }";
      expected = "/nix/store/71fc7s32zl20dc955bhghy5dvalm7ndz-busybox";
    };
    step.testHandsItsValueToItsFirstScript = {
      expr =
        let
          made = inner.step {
            name = "hello";
            scripts = [
              "bundle.py"
              "step.py"
            ];
            config.greeting = "hello";
            allowedReferences = [ ];
          };
        in
        [
          (baseNameOf (elemAt made.args 3))
          made.config
        ];
      expected = [
        "bundle.py"
        "{\"greeting\":\"hello\"}"
      ];
    };

    busybox.testIsTheTargets = {
      expr = "${there.busybox}";
      expected = "${(seeds foreign).busybox}";
    };
    toolchain.testRunsHereWhateverItIsFor = {
      expr = [
        there.toolchain.system
        there.toolchain.multiarch
        there.toolchain.name
      ];
      expected = [
        here.toolchain.system
        platforms.${foreign}.multiarch
        "debian-12-python-3.11"
      ];
    };
    wheel.testIsAnInstalledPackageMadeHere = {
      expr = madeHere "six-1.17.0" wheel;
      expected = true;
    };
    project.testIsAWheelMadeHere = {
      expr = madeHere "outer-0.1.0-wheel" (
        there.project {
          name = "outer";
          version = "0.1.0";
          source = found.outer;
          backend = here.environment { wheels = [ ]; };
        }
      );
      expected = true;
    };
    environment.testRefersToItsWheelsAndToNothingOfTheBuildMachine = {
      expr =
        let
          made = there.environment { wheels = [ wheel ]; };
        in
        [
          (madeHere "environment" made)
          (elem "${wheel}" (map toString made.allowedReferences))
          (elem "${here.toolchain}" (map toString made.allowedReferences))
        ];
      expected = [
        true
        true
        false
      ];
    };
    linked.testIsMadeHere = {
      expr = madeHere "linked" (
        there.linked {
          wheels = [ wheel ];
          tools = wheel;
        }
      );
      expected = true;
    };
    tools.testAreMadeHere = {
      expr = madeHere "tools" (
        there.tools {
          declared = [ "jq" ];
          packages = [
            {
              package = "jq";
              archive = artifact six;
            }
          ];
        }
      );
      expected = true;
    };
    npm.testIsMadeHereAndRefersToItsNode = {
      expr =
        let
          tool =
            node:
            there.npm {
              name = "@x/tool-1.0.0";
              packages."node_modules/@x/tool" = artifact six;
              programs.tool = "node_modules/@x/tool/cli.js";
              inherit node;
            };
        in
        [
          (madeHere "x.tool-1.0.0" (tool null))
          (elem "${wheel}" (map toString (tool wheel).allowedReferences))
        ];
      expected = [
        true
        true
      ];
    };
    asked.testGivesAFileWhatItAsksForAndEvaluatesNothingElse = {
      expr = [
        (given "agentix" { agentix.one = six'; })
        (given "pkgs" {
          pkgs = {
            one = six';
            two = wheel;
          };
        })
        (given "nothing" { })
        (map (inStore "tree") (given "folder" { }))
      ];
      expected = [
        [ "${six'}" ]
        [
          "${six'}"
          "${wheel}"
        ]
        [ ]
        [ true ]
      ];
    };
    asked.testRefusesWhatNobodyHasAndWhatIsNoDerivation = {
      expr = map (name: (tryEval (given name { })).success) [
        "more"
        "text"
      ];
      expected = [
        false
        false
      ];
    };
    bundle.testIsMadeHere = {
      expr = madeHere "bundle" (
        there.bundle {
          environment = there.environment { wheels = [ wheel ]; };
          project = wheel;
          tools = null;
          about = {
            name = "outer";
            version = "0.1.0";
          };
        }
      );
      expected = true;
    };

    kit.testHasTheProgramsOfItsPlatformButRunsHere = {
      expr = [
        ("${there.busybox}" == "${here.busybox}")
        there.toolchain.system
      ];
      expected = [
        false
        here.toolchain.system
      ];
    };
    kit.testRunsThePlatformsOwnPythonOnlyAtHome = {
      expr = [
        here.toolchain.python
        "${there.toolchain.python}"
      ];
      expected = [
        null
        "${here.toolchain}"
      ];
    };

    locked.testTakesThePinnedToolchain = {
      expr = "${build.toolchain}";
      expected =
        "${(kit {
          pin = pin "debian-12";
          platform = "linux/amd64";
        }).toolchain}";
    };
    locked.testNeedsTheSourcesOfEveryProject = {
      expr =
        fails
          (locked {
            inherit lock;
            platform = "linux/amd64";
            sources = { };
          }).bundle;
      expected = true;
    };

    mkBundle.testFindsTheSources = {
      expr =
        "${mkBundle {
          src = tree;
          lock = ./fixtures/bundle.lock;
          platform = "linux/amd64";
        }}";
      expected = "${build.bundle}";
    };
  };
in
{
  inherit tests;
  library = library // inner;
}
