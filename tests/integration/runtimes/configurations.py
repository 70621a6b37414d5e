"""Configurations of containerd as they are met on nodes, written for these tests from the documented format.

Each says what the agent is asked for, and where it must refuse: by the releases from one to another, with a word of the
reason. Wherever it need not refuse, the real daemon must come up with what was asked for and everything it had.
"""

from typing import Final

from nodeagent.components.runtime.plan import HEADER
from tests.integration.runtimes.configuration import (
    BARE2,
    CRI1,
    CRI2,
    CRI3,
    CRUN,
    CRUN_ALONE,
    DOTTED2,
    IGNORED,
    IMAGES_ID,
    KATA,
    MAIN,
    MIXED,
    NEWEST,
    NO_CDI,
    NO_DEFAULT_1,
    OFF,
    OLDEST,
    ON,
    REGISTRY2,
    SERVER_3,
    SERVER_4,
    SHORT2,
    TOO_NEW,
    TOO_NEW_4,
    TOOLKIT,
    V2,
    V3,
    Configuration,
    Refusal,
    always,
    full,
    give,
    lines,
    runc,
)

PLAIN: Final = (
    Configuration("no file, class", {}, "class"),
    Configuration("no file, cdi", {}, "cdi", (NO_CDI,)),
    give("empty, class", "", "class"),
    give("empty, cdi", "", "cdi"),
    give("comments alone, class", "# nothing here yet\n\n", "class"),
    give("comments alone, cdi", "# nothing here yet\n", "cdi"),
    give("version 2 alone, class", "version = 2\n", "class"),
    give("version 2 alone, cdi", "version = 2\n", "cdi"),
    give("version 3 alone, class", "version = 3\n", "class", TOO_NEW),
    give("version 4 alone, class", "version = 4\n", "class", TOO_NEW_4),
    give("version 99", "version = 99\n", "class", always("reads up to")),
    give("version as text", 'version = "2"\n', "class", always("configuration version '2'")),
    give("version below all", "version = -1\n", "class", always("configuration version -1")),
)

RUNTIMES_2: Final = (
    give("2: runc with systemd, class", V2, "class"),
    give("2: runc with systemd, cdi", V2, "cdi"),
    give("2: cdi off", full(2, CRI2, OFF), "cdi"),
    give("2: cdi off, class", full(2, CRI2, OFF), "class"),
    give("2: cdi on already", full(2, CRI2, ON), "cdi"),
    give("2: no runtimes", SHORT2, "class"),
    give("2: no runtimes but a containerd table", f"version = 2\n{CRI2}.containerd]\n  no_pivot = false\n", "class"),
    give("2: an empty table of runtimes", f"version = 2\n{CRI2}.containerd.runtimes]\n", "class"),
    give("2: runc without options", V2[: V2.rindex(f"  {CRI2}")], "class"),
    give("2: crun is the default", full(2, CRI2, default="crun") + runc(CRI2, CRUN, "crun"), "class"),
    give("2: crun alone", CRUN_ALONE, "class"),
    give("2: kata is the default", full(2, CRI2, default="kata") + CRI2 + KATA, "class"),
    give("2: kata beside no runc", f"version = 2\n{CRI2}{KATA}", "class", NO_DEFAULT_1),
    give("2: kata beside no runc, cdi", f"version = 2\n{CRI2}{KATA}", "cdi", NO_CDI, NO_DEFAULT_1),
    give("2: the default is no runtime", full(2, CRI2, default="gone"), "class", always("default runtime gone")),
    give("2: our class alone, as once written", f"version = 2\n{runc(CRI2, TOOLKIT, 'nvidia')}", "class"),
    give("2: our class alone, cdi", f"version = 2\n{runc(CRI2, TOOLKIT, 'nvidia')}", "cdi", NO_CDI, NO_DEFAULT_1),
    give(
        "2: nvidia is the default, alone",
        f'version = 2\n{CRI2}.containerd]\n  default_runtime_name = "nvidia"\n' + runc(CRI2, TOOLKIT, "nvidia"),
        "class",
    ),
    give("2: nvidia left beside runc", V2 + runc(CRI2, TOOLKIT, "nvidia"), "cdi"),
    give(
        "2: three classes of the toolkit",
        V2 + "".join(runc(CRI2, TOOLKIT, name) for name in ("nvidia", "nvidia-cdi", "nvidia-legacy")),
        "class",
    ),
    give(
        "2: annotations and privileges",
        V2.replace('v2"\n', 'v2"\n  pod_annotations = ["io.example.*"]\n  privileged_without_host_devices = true\n', 1),
        "class",
    ),
)

TEXT_2: Final = (
    give(
        "2: dotted keys",
        lines(
            "version = 2",
            f"{DOTTED2}.max_container_log_line_size = 1",
            f'{DOTTED2}.containerd.runtimes.runc.runtime_type = "io.containerd.runc.v2"',
        ),
        "class",
    ),
    give(
        "2: an inline table",
        'version = 2\n[plugins]\n  "io.containerd.grpc.v1.cri" = { max_container_log_line_size = 4096 }\n',
        "cdi",
        Refusal((1, 7), (1, 7), "by hand"),
    ),
    give(
        "2: literal quotes and odd spaces", V2.replace('"', "'").replace(" = ", "   =\t").replace("[p", "[ p"), "class"
    ),
    give("2: carriage returns, class", V2.replace("\n", "\r\n"), "class"),
    give("2: carriage returns, cdi", full(2, CRI2, OFF).replace("\n", "\r\n"), "cdi"),
    give("2: no last newline", V2.rstrip("\n"), "class"),
    give("2: comments everywhere", V2.replace("\n", ' # kept = [it] "is"\n') + "# the end: äöü\n", "class"),
    give("2: version is not first", "oom_score = 0\n\n" + V2, "class"),
    give(
        "2: keys nobody knows",
        f'what = 1\n{V2}{CRI2}.nothing]\n  of = "ours"\n[plugins."io.containerd.example.v9.thing"]\n  a = [1]\n',
        "class",
    ),
    give("2: broken", f"{V2}this is [no toml\n", "class", always("no TOML")),
    give("2: a table twice", f"{V2}\n{CRI2}]\n", "class", always("no TOML")),
    give("2: a byte order mark", "\ufeff" + V2, "class", always("no TOML")),
)

SERVER_2: Final = (
    give(
        "2: cri is switched off",
        'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n',
        "class",
        always("switches CRI off"),
    ),
    give(
        "2: cri is switched off by its short name",
        'version = 2\ndisabled_plugins = ["cri"]\n',
        "class",
        always("switches CRI off"),
    ),
    give("2: others are switched off", f'disabled_plugins = ["io.containerd.snapshotter.v1.zfs"]\n{V2}', "class"),
    give("2: mirrors beside config_path", V2 + REGISTRY2, "class", always("`mirrors` cannot be set")),
    give("2: a number that is a text", V2.replace("65536", '"many"'), "class", always("refuses the new configuration")),
    give(
        "2: addresses of a server",
        V2 + lines("[metrics]", '  address = "127.0.0.1:10257"', "[debug]", '  address = "/run/x/debug.sock"'),
        "class",
    ),
    give(
        "2: a fixed port of streams",
        full(2, CRI2, '  stream_server_address = "127.0.0.1"\n  stream_server_port = "10010"\n'),
        "class",
    ),
    give(
        "2: storage of another program",
        V2 + lines("[proxy_plugins.stargz]", '  type = "snapshot"', '  address = "/run/x/stargz.sock"'),
        "class",
    ),
    give(
        "2: a server's own directories",
        'root = "/var/lib/elsewhere"\nstate = "/run/elsewhere"\n'
        + V2
        + lines("[cgroup]", '  path = ""', "[timeouts]", '  "io.containerd.timeout.shim.cleanup" = "5s"'),
        "class",
    ),
    give("2: where CDI lies", full(2, CRI2, '  cdi_spec_dirs = ["/etc/cdi", "/srv/cdi"]\n'), "cdi"),
    give("2: where the network lies", f'{V2}{CRI2}.cni]\n  conf_dir = "/srv/cni/net.d"\n', "class"),
)

BESIDE: Final = 'imports = ["conf.d/*.toml"]\n'
ALL_OF: Final = 'imports = ["/@main@/conf.d/*.toml"]\n'
DORMANT: Final = {"conf.d__50-old": "this is [no toml\n", "conf.d__60-other": full(2, CRI2, default="gone")}
LATER_OFF: Final = lines("version = 2", f"{CRI2}]", "  enable_cdi = false")
ELSEWHERE: Final = Refusal((1, 6), (1, 6), "whole path")
IMPORTS_2: Final = (
    give("imports: a relative pattern", BESIDE + V2, "class", ELSEWHERE, **{"conf.d__10-site": V2}),
    give("imports: a relative pattern, nothing matches", BESIDE + V2, "class"),
    give("imports: nothing matches", ALL_OF + V2, "class"),
    give("imports: runc is in a drop-in", f"{ALL_OF}version = 2\n", "class", **{"conf.d__10-site": V2}),
    give(
        "imports: the toolkit's drop-in",
        ALL_OF + V2,
        "class",
        **{"conf.d__99-nvidia": V2 + runc(CRI2, TOOLKIT, "nvidia")},
    ),
    give(
        "imports: the toolkit's, cdi", ALL_OF + V2, "cdi", **{"conf.d__99-nvidia": V2 + runc(CRI2, TOOLKIT, "nvidia")}
    ),
    give("dormant: broken files, class", V2, "class", **DORMANT),
    give("dormant: broken files, cdi off", full(2, CRI2, OFF), "cdi", **DORMANT),
    give("dormant: beside no main file's tables", "version = 2\n", "class", **DORMANT),
    give("dormant: our own, as once written", full(2, CRI2, OFF), "cdi", **{"conf.d__zz-nodeagent": LATER_OFF}),
    give("dormant: our own, broken", full(2, CRI2, OFF), "class", **{"conf.d__zz-nodeagent": "this is [no toml\n"}),
    give("imports: a file that is not there", f'imports = ["gone.toml"]\n{V2}', "class", always("is not there")),
    give(
        "imports: in a circle", ALL_OF + V2, "class", **{"conf.d__50-circle": f'version = 2\nimports = ["../{MAIN}"]\n'}
    ),
    give(
        "imports: two deep",
        f'imports = ["a.toml"]\n{V2}',
        "class",
        a='version = 2\nimports = ["b.toml"]\n',
        b=full(2, CRI2, "  enable_selinux = false\n"),
    ),
    give("imports: an empty list", f"imports = []\n{V2}", "class"),
    give("imports: an empty list, cdi off", f"imports = []\n{full(2, CRI2, OFF)}", "cdi"),
    give(
        "imports: a list over lines",
        f'version = 2\nimports = [ # which\n  "a.toml", # ours\n]\n{full(2, CRI2, OFF).removeprefix("version = 2")}',
        "cdi",
        a="version = 2\noom_score = 0\n",
    ),
    give(
        "imports: a later file switches CDI off",
        ALL_OF + V2,
        "cdi",
        Refusal((2, 0), (2, 3), "after ours"),
        **{"conf.d__zzz-last": LATER_OFF},
    ),
    give(
        "imports: a drop-in without version",
        ALL_OF + V2,
        "class",
        NO_DEFAULT_1,
        **{"conf.d__10-bare": runc(CRI2, CRUN, "crun")},
    ),
    give(
        "imports: a drop-in changes the default",
        ALL_OF + V2,
        "class",
        **{"conf.d__10-default": CRUN_ALONE},
    ),
    give(
        "imports: a drop-in switches cri off",
        ALL_OF + V2,
        "class",
        always("switches CRI off"),
        **{"conf.d__10-off": 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'},
    ),
    give(
        "imports: our former wildcard",
        f'imports = ["/@main@/conf.d/*.toml"]\n{full(2, CRI2, OFF)}',
        "cdi",
        **{"conf.d__zz-nodeagent": f"version = 2\n{CRI2}]\nenable_cdi = true\n"},
    ),
    give(
        "imports: our drop-in of an earlier release",
        f'imports = ["/@main@/conf.d/99-nodeagent.t*ml"]\n{full(2, CRI2, OFF)}',
        "cdi",
        **{"conf.d__99-nodeagent": f"{HEADER.decode()}version = 2\n{CRI2}]\nenable_cdi = true\n"},
    ),
    give(
        "mixed: a newer drop-in",
        ALL_OF + V2,
        "class",
        Refusal(OLDEST, (2, 2), "same version"),
        **{"conf.d__10-new": V3},
    ),
    give("mixed: an older drop-in", ALL_OF + V3, "class", TOO_NEW, MIXED, **{"conf.d__10-old": V2}),
)

VERSION_3: Final = (
    give("3: runc with systemd, class", V3, "class", TOO_NEW),
    give("3: runc with systemd, cdi", V3, "cdi", TOO_NEW),
    give("3: cdi off", full(3, CRI3, OFF), "cdi", TOO_NEW),
    give("3: cdi off, class", full(3, CRI3, OFF), "class", TOO_NEW),
    give("3: no runtimes", f"version = 3\n{CRI3}]\n  max_container_log_line_size = 1\n", "class", TOO_NEW),
    give("3: kata beside no runc", f"version = 3\n{CRI3}{KATA}", "class", TOO_NEW),
    give("3: kata is the default", full(3, CRI3, default="kata") + CRI3 + KATA, "class", TOO_NEW),
    give(
        "3: the default is no runtime", full(3, CRI3, default="gone"), "class", TOO_NEW, always("default runtime gone")
    ),
    give("3: images and streams", V3 + SERVER_3, "class", TOO_NEW),
    give("3: carriage returns", full(3, CRI3, OFF).replace("\n", "\r\n"), "class", TOO_NEW),
    give("3: dormant files", full(3, CRI3, OFF), "class", TOO_NEW, **DORMANT),
    give(
        "3: the toolkit's drop-in, cdi off",
        ALL_OF + full(3, CRI3, OFF),
        "class",
        TOO_NEW,
        **{"conf.d__99-nvidia": full(3, CRI3, OFF) + runc(CRI3, TOOLKIT, "nvidia")},
    ),
    give(
        "3: images are switched off", f'disabled_plugins = ["{IMAGES_ID}"]\n{V3}', "class", TOO_NEW, always("CRI off")
    ),
    give("4: runc with systemd, class", full(4, CRI3), "class", TOO_NEW_4),
    give("4: cdi off", full(4, CRI3, OFF), "cdi", TOO_NEW_4),
    give("4: a server's own tables", full(4, CRI3) + SERVER_4, "class", TOO_NEW_4),
)

V1: Final = full(1, CRI1)
BARE1: Final = V1.removeprefix("version = 1\n")
VERSION_1: Final = (
    give("1: no version, class", BARE1, "class", IGNORED),
    give("1: no version, cdi", BARE1, "cdi"),
    give("1: with its version, class", V1, "class", IGNORED),
    give("1: cdi off", full(1, CRI1, OFF), "cdi"),
    give("1: cdi off, class", full(1, CRI1, OFF), "class", IGNORED),
    give("1: no runtimes", f"{CRI1}]\n  max_container_log_line_size = 1\n", "class", IGNORED),
    give("1: nothing of CRI", 'oom_score = 0\n[debug]\n  level = "info"\n', "class", IGNORED),
    give(
        "1: the default in a table of its own",
        f'{CRI1}.containerd.default_runtime]\n  runtime_type = "io.containerd.runc.v2"\n',
        "class",
        IGNORED,
    ),
    give("1: our class alone, as once written", runc(CRI1, TOOLKIT, "nvidia"), "class", IGNORED),
    give("1: cri is switched off", 'disabled_plugins = ["cri"]\n', "class", always("switches CRI off")),
    give("1: tables of version 2", BARE2, "class", IGNORED, Refusal((2, 3), NEWEST, "without the runtime nvidia")),
    give("1: imports alone", ALL_OF, "class", IGNORED, **{"conf.d__10-site": V1}),
)
SHIM: Final = (
    Configuration("no file, shim", {}, "shim"),
    Configuration("no file, default", {}, "default"),
    give("version 2 alone, default", "version = 2\n", "default"),
    give("2: shim", V2, "shim"),
    give("2: shim by default", V2, "default"),
    give("2: shim by default, crun before", full(2, CRI2, default="crun") + runc(CRI2, CRUN, "crun"), "default"),
    give("2: the toolkit's class becomes the shim", V2 + runc(CRI2, TOOLKIT, "nvidia"), "shim"),
    give(
        "2: the toolkit's default becomes the shim",
        full(2, CRI2, default="nvidia") + runc(CRI2, TOOLKIT, "nvidia"),
        "default",
    ),
    give("2: a default that the toolkit left behind", full(2, CRI2, default="nvidia"), "shim"),
    give(
        "2: in an import, shim by default",
        ALL_OF + SHORT2,
        "default",
        **{"conf.d__10-site": V2 + runc(CRI2, TOOLKIT, "nvidia")},
    ),
    give("3: shim by default", V3, "default", TOO_NEW),
    give("3: the toolkit's class becomes the shim", V3 + runc(CRI3, TOOLKIT, "nvidia"), "shim", TOO_NEW),
    give("3: a default that the toolkit left behind", full(3, CRI3, default="nvidia"), "default", TOO_NEW),
    give("1: shim by default", V1, "default", IGNORED),
)
CONFIGURATIONS: Final = (
    *PLAIN,
    *RUNTIMES_2,
    *TEXT_2,
    *SERVER_2,
    *IMPORTS_2,
    *VERSION_3,
    *VERSION_1,
    *SHIM,
)
