"""The differential fuzzer: that it finds what is planted, and that the same seed gives the same cases."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

# Kind of fault: the operator that has it.
PLANTED = {
    "values": "torch.mul", "type": "F.relu6", "shape": "torch.flip", "strides": "torch.add", "no error": "F.conv_transpose2d",
    "error": "torch.cat", "abort": "F.softmax", "beside": "torch.tril",
}


def differential(*arguments, timeout=900):
    command = [sys.executable, "-m", "differential", *arguments]
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env={**os.environ, "PYTHONPATH": path})
    print(done.stdout, done.stderr)
    return done


def test_planted_faults_are_found_and_made_small(tmp_path, fresh_seed):
    # On the CPU in the device's place: the faults are planted in what is under test, whatever that is.
    report = tmp_path / "report.json"
    only = [word for operator in PLANTED.values() for word in ("--only", operator)]
    plants = [word for kind, operator in PLANTED.items() for word in ("--plant", f"{kind}:{operator}")]
    limits = ["--cases", "800", "--seconds", "400", "--jobs", "1", "--shrink", "3"]
    done = differential("--device", "cpu", "--seed", str(fresh_seed), "--json", str(report), *limits, *only, *plants)
    assert done.returncode == 1
    findings = json.loads(report.read_text())["findings"]
    for kind, operator in PLANTED.items():
        alike = [f for f in findings if f["op"] == operator and f["kind"] in (kind, "gradient")]
        assert alike, f"{kind} of {operator}"
        small = min((f["reproducer"] for f in alike), key=len)
        assert len(small.splitlines()) == 3 and len(small) < 800, small
    assert {f["op"] for f in findings} <= set(PLANTED.values())


def test_fresh_cases(fresh_seed):
    # What fails here: the three lines repeat it; so does the command at the end of the output.
    done = differential("--seconds", "15", "--jobs", "1", "--seed", str(fresh_seed))
    assert done.returncode == 0


def test_other_indices_of_equal_elements():
    """Accepted of a sort that is not stable, unless they are no permutation or name other elements."""
    import torch
    from differential import compare
    from differential.cases import Case, Data, Ref

    given = Data(torch.int8, (4,), ("ints",), 7)
    x = given.base()
    case = Case("torch.argsort", (Ref(0),), {}, (given,), "plain", "")

    def other(order, **kwargs):
        found = lambda op, case, tensors, *_: torch.tensor(order)  # noqa: E731
        return compare.check(dataclasses.replace(case, kwargs=kwargs), "cpu", call=found)

    assert x.unique().numel() < 4, x
    same = next((i, j) for i in range(4) for j in range(i) if x[i] == x[j])
    order = x.argsort(stable=True).tolist()
    swapped = [same[1] if i == same[0] else same[0] if i == same[1] else i for i in order]
    assert other(order) is None and other(swapped) is None and other(order, stable=True) is None
    assert other(swapped, stable=True).kind == "values"
    assert other([same[0] if i == same[1] else i for i in order]).kind == "values"
    assert other(order[::-1]).kind == "values"


def test_a_written_statistic_may_have_its_old_value():
    """What the CPU rounds back to what it was, the device need not: 0.78125 to bfloat16's 0.78125, where f64 has 0.7786."""
    import torch
    from differential import compare
    from differential.cases import Case, Data, Ref

    given = tuple(Data(torch.bfloat16, shape, fill, 713) for shape, fill in (((1, 1, 20), ("normal",)), ((1,), ("normal",)), ((1,), ("between", 0.5, 2))))

    def off_by(part, training):
        def call(op, case, tensors, device, change, keywords):
            made = op.call(case, tensors, device, change, **keywords)
            tensors[2].mul_(1 + part)
            return made

        arguments = {"training": training, "momentum": 0.0}
        return compare.check(Case("F.batch_norm", (Ref(0), Ref(1), Ref(2)), arguments, given, "plain", ""), "cpu", call=call)

    assert off_by(0, True) is None and off_by(2**-7, True) is None
    assert off_by(1.0, True).kind == "values" and off_by(2**-7, False).kind == "beside"


def test_a_planted_hang_is_its_cases_finding(tmp_path):
    report = tmp_path / "report.json"
    limits = ["--cases", "1", "--jobs", "1", "--deadline", "4", "--shrink", "0", "--only", "torch.roll"]
    done = differential("--device", "cpu", "--plant", "hang:torch.roll", "--json", str(report), *limits)
    assert done.returncode == 1
    (finding,) = json.loads(report.read_text())["findings"]
    assert finding["kind"] == "hang" and "torch.roll(" in finding["reproducer"]


def test_a_case_that_gets_no_processor_is_no_hang():
    limits = ["--cases", "1", "--jobs", "1", "--deadline", "4", "--shrink", "0", "--only", "torch.roll"]
    done = differential("--device", "cpu", "--plant", "starved:torch.roll", *limits)
    assert done.returncode == 0 and "1 not judged as the machine was busy" in done.stdout


def test_cases_are_a_function_of_seed_and_number(fresh_seed):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from differential.generate import make; "
        "print([repr(make(int(sys.argv[2]), n)) for n in range(200)])"
    )
    command = [sys.executable, "-c", script, str(HERE), str(fresh_seed)]
    one, two = (subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout for _ in range(2))
    assert one == two and one.count("Case(") == 200


def test_every_operator_is_called_rightly_now_and_then(fresh_seed):
    """A row whose every call is an error tests nothing."""
    script = (
        "import random, sys, warnings; sys.path.insert(0, sys.argv[1]); warnings.simplefilter('ignore'); import dataclasses, torch\n"
        "from differential import generate, sides; from differential.operators import NAMES, OPS\n"
        "for name in NAMES:\n"
        "    rng = random.Random(f'{sys.argv[2]}{name}')\n"
        "    drawn = (dataclasses.replace(generate._draw(OPS[name], rng), mode='plain', out='') for _ in range(40))\n"
        "    if all(sides.run(case, 'cpu').error for case in drawn): print(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(HERE), str(fresh_seed)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", f"always an error: {done.stdout}"
