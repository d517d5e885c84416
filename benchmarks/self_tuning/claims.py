"""What the documents say of this benchmark in words; ``python -m benchmarks.claims`` checks it."""

from benchmarks.files import RESULTS
from benchmarks.self_tuning import frozen, sentences
from benchmarks.self_tuning.analysis import Results, behind
from benchmarks.self_tuning.peers import AUTO, OURS, PEERS, SPECTRAL
from benchmarks.self_tuning.records import FOLDER, Records
from benchmarks.self_tuning.roles import RETUNED, TUNED, UNTOUCHED, counted
from benchmarks.self_tuning.task import DEVELOPMENT, SIDES
from benchmarks.self_tuning.tasks import BATCHES, HORIZONS, TASKS, VARIANTS
from benchmarks.self_tuning.times import seconds

PAGE = RESULTS.parents[1] / "docs" / "experiments.md"
COUNTED = [name for side in SIDES for name in counted(side)]


def the_page_counts_tasks_kinds_peers_and_rates_as_the_code_does() -> None:
    others = [peer for name, peer in PEERS.items() if name not in OURS]
    kinds = {TASKS[name].kind for name in COUNTED}
    text = f"{len(others)} peers on {len(COUNTED)} tasks of {len(kinds)} kinds"
    assert text in " ".join(PAGE.read_text(encoding="utf-8").split()), text
    assert len(RETUNED) == 6
    assert all(len(peer.rates) == 6 for peer in others)
    assert set(BATCHES) == {1, 8, 512}  # beside 64
    assert set(HORIZONS.values()) == {0.25, 4}
    bases = {task.variant_of for task in VARIANTS.values()}
    assert bases == {"mlp_fashion", "table_heavy", "factorization"}


def mu2_auto_was_run_on_other_than_development_tasks_only_as_it_was_frozen() -> None:
    known = frozen.read()
    for name in (name for name in COUNTED if TASKS[name].side != DEVELOPMENT):
        own = Records(FOLDER, name)
        for cell, run in own.read().items():
            commit = own.info()[run["info"]]["frozen"]
            if cell.peer in OURS:
                assert commit in known[cell.peer]["commits"], (name, cell, commit)


def a_run_takes_at_most_a_minute_or_so() -> None:
    results = Results(FOLDER)
    for name in COUNTED:
        for peer in PEERS:
            took = seconds(results, name, peer)
            assert took is None or took < 75, (name, peer, took)


def somebody_who_tunes_finds_more_on_most_tasks() -> None:
    pairs = sentences.beside_the_best(results := Results(FOLDER), TUNED, COUNTED, AUTO)
    lost = [name for name, pair in pairs.items() if behind(TASKS[name], *pair) > 0]
    assert len(lost) > len(pairs) / 2, lost
    by = [behind(TASKS[name], *pair) for name, pair in pairs.items()]
    assert 0.45 < sum(b > 0.02 for b in by) / len(by) < 0.57, by  # half
    assert 0.2 < sum(b > 0.1 for b in by) / len(by) < 0.28, by  # a quarter
    high = {n: behind(TASKS[n], *p) for n, p in pairs.items() if TASKS[n].metric == "error"}
    assert all(by > 1 for by in high.values()), high
    assert results.compared(COUNTED)


def orthogonal_steps_are_the_better_choice_for_most_networks() -> None:
    results = Results(FOLDER)
    better = {}
    for name in COUNTED:
        pair = [results.figure(UNTOUCHED, name, peer) for peer in (SPECTRAL, AUTO)]
        if pair[0] and pair[1]:
            better[name] = behind(TASKS[name], pair[0].mean, pair[1].mean) < 0
    assert sum(better.values()) > len(better) / 2, better


def they_cost_several_times_the_gradient_of_a_small_dense_network() -> None:
    results = Results(FOLDER)
    for name in ("mlp_fashion", "mlp_mnist"):
        with_them, without = (seconds(results, name, peer) for peer in (SPECTRAL, AUTO))
        assert with_them is not None, name
        assert without is not None, name
        assert with_them > 2 * without, name


def orthogonal_steps_work_with_few_samples_in_a_batch() -> None:
    results = Results(FOLDER)
    for size in (1, 8):
        name = f"mlp_fashion_batch_{size}"
        means = [results.figure(UNTOUCHED, name, peer).mean for peer in (SPECTRAL, AUTO)]
        assert means[0] > means[1] - 0.01, (name, means)


def longer_runs_leave_more_to_tuned_peers() -> None:
    lost = {}
    for name in ("table_heavy_fourfold", "factorization_fourfold"):
        pair = sentences.beside_the_best(Results(FOLDER), TUNED, [name], AUTO)[name]
        lost[name] = behind(TASKS[name], *pair)
    assert all(0.2 < by < 0.4 for by in lost.values()), lost


CLAIMS = (
    orthogonal_steps_work_with_few_samples_in_a_batch,
    longer_runs_leave_more_to_tuned_peers,
    the_page_counts_tasks_kinds_peers_and_rates_as_the_code_does,
    mu2_auto_was_run_on_other_than_development_tasks_only_as_it_was_frozen,
    a_run_takes_at_most_a_minute_or_so,
    somebody_who_tunes_finds_more_on_most_tasks,
    orthogonal_steps_are_the_better_choice_for_most_networks,
    they_cost_several_times_the_gradient_of_a_small_dense_network,
)
