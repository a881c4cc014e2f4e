"""Every option that a text of the program names exists in the command that it is about: hints.py SOURCE < options"""
import re
import sys
from pathlib import Path

source = Path(sys.argv[1])
flags = {}
for line in sys.stdin:
    command, flag, _, what = line.rstrip("\n").split("\t")
    names = flags.setdefault(command, {"--help"})
    names.add(flag)
    if what == "flag":
        names.add("--no-" + flag[2:])
parts = {}
for command, names in flags.items():
    last = {}
    for flag in names:
        last.setdefault("--" + flag.rsplit(".", 1)[-1].lstrip("-"), []).append(flag)
    names |= {short for short, full in last.items() if len(full) == 1}
run = flags["config"]
global_flags = {"--help", "--version", "--json"}
# Which commands the texts of a module reach, where that is not "whatever trains".
speaks_for = {
    "src/diagnose/": ["diagnose"],
    "src/report/diagnose": ["diagnose"],
    "src/ladder/predicted": ["ladder plan"],
    "src/ladder/": ["ladder"],
    "src/sim/replay": ["predict"],
    "src/logs/": ["mfu"],
    "src/audit/": ["audit"],
    "src/job/": ["audit", "predict cluster"],
    "src/health/": ["health"],
    "src/train/evaluate": ["eval"],
    "src/cli/engine/demo": ["demo", "ladder"],  # it starts one
}
others = re.compile(r"launch\.--|srun|numactl|torchrun|docker|systemctl|^--shm-size|nsys|zstd|amd-smi|nvidia-smi|rocm-smi|Megatron|TorchTitan|rocprof|ncu |^--pytorch-|^--(cuda|python)-|--mca ")  # options of other programs
style = ("src/audit/spell.c", "src/job/forms_megatron.c", "src/plan/settings.c", "src/draw/style.c", "src/report/roofline_svg.c", "src/cli/completion.c", "src/cli/engine/launch_line.c")  # CSS, mpirun's, shells' own and frameworks' options

literal = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
option = re.compile(r"(?<![\w-])--[a-z][a-z0-9.-]*[a-z0-9]")
named = re.compile(r"flatout ((?:data |predict (?=cluster)|plan (?=machine)|ladder (?=plan)|compare (?=clusters))?[a-z-]+)")


def texts(code):
    """Neighbouring literals as one, with the number of the line."""
    at, text, begin = None, "", 0
    for m in literal.finditer(code):
        if at is not None and code[at:m.start()].strip() == "":
            text += m.group(1)
        else:
            if text:
                yield begin, text
            text, begin = m.group(1), code.count("\n", 0, m.start()) + 1
        at = m.end()
    if text:
        yield begin, text


def of_file(path, code):
    """The commands that a file of src/cli speaks for."""
    own = re.findall(r'\.name = "([a-z -]+)"', code)
    own += [c.replace("_", " ") for c in re.findall(r"\.instead = &fo_cmd_(\w+)", code)]
    stem = path.stem.replace("_", " ")
    return [c for c in own if c in flags] or [c for c in flags if stem == c or stem.startswith(c + " ")]


wrong = 0
for path in sorted(source.glob("src/**/*.c")):
    code = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), path.read_text(), flags=re.S)
    cli = "cli" in path.parts
    name = path.relative_to(source).as_posix()
    commands = of_file(path, code) if cli else []
    commands = next((c for begin, c in speaks_for.items() if name.startswith(begin)), commands)
    commands = [c for c in commands if c in flags]
    if name in style:
        continue
    for line, text in texts(code):
        for sentence in re.split(r"\\n|; ", text):
            for m in option.finditer(sentence):
                before = [c for c in named.finditer(sentence[: m.start()])]
                flag = m.group()
                about = commands + [c.group(1) for c in before if c.group(1) in flags]
                if flag in global_flags or others.search(sentence):
                    continue
                if about:
                    ok = any(flag in flags[c] for c in about) or cli and flag in run and "." in flag
                else:
                    ok = flag in run if not cli else any(flag in f for f in flags.values())
                if not ok:
                    print(f"{name}:{line}: '{flag}' is no option of {' or '.join(about) or 'a run'}: {sentence[:100]}")
                    wrong = 1
sys.exit(wrong)
