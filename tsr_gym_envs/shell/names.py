"""The words of tasks: names of files and folders, words in files, levels of logs."""

NAMES = (
    "acorn", "amber", "apple", "arrow", "aspen", "badge", "basil", "beach", "birch", "bloom", "bridge", "cabin",
    "candle", "cedar", "cherry", "clover", "copper", "coral", "cotton", "daisy", "delta", "ember", "falcon", "fern",
    "flint", "forest", "garden", "ginger", "harbor", "hazel", "heron", "island", "ivory", "jasper", "kettle", "lemon",
    "linen", "lotus", "maple", "marble", "meadow", "mint", "nectar", "nickel", "olive", "onyx", "orchid", "otter",
    "pearl", "pebble", "pepper", "pine", "plum", "quartz", "raven", "ribbon", "river", "robin", "saddle", "sage",
    "silver", "spruce", "summit", "thistle", "timber", "topaz", "tulip", "valley", "velvet", "walnut", "willow", "zinc",
)  # fmt: skip
WORDS = (
    "anchor", "barrel", "button", "camera", "carpet", "engine", "fabric", "hammer", "ladder", "magnet", "mirror",
    "needle", "pencil", "pillow", "pocket", "rocket", "saucer", "shovel", "socket", "spring", "string", "ticket",
    "tunnel", "wagon",
)  # fmt: skip
LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
