"""What the tool found, as values with attributes: each holds the document that the tool writes with --json (docs/json.md).

`document` is all of it; attributes are what is usually asked for, with the names and units of the document. to_pandas() is a
DataFrame with a row for each of `rows`, save(path) writes the document (.json), the table (.csv) or the page (.html), report() is
the text that the command line prints, and a notebook shows the page.

SPDX-License-Identifier: Apache-2.0
"""

import dataclasses
import html
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, Type, TypeVar, Union

from dovetail._tool import Document, InputError, Word, Words, call, made_file
from dovetail.inputs import PathLike

if TYPE_CHECKING:
    import pandas

Json = Dict[str, Any]
T = TypeVar("T")


def _row(kind: Type[T], data: Json, **own: Any) -> T:
    """A value whose fields are those keys of the document, but for `own`."""
    names = {one.name for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    known = {key: value for key, value in data.items() if key in names and key not in own}
    return kind(**known, **own)


def _ms(us: float) -> str:
    return f"{us / 1e3:.3f} ms"


def _frame(rows: List[Json]) -> "pandas.DataFrame":
    try:
        import pandas
    except ImportError:
        raise ImportError("to_pandas() needs pandas: pip install pandas; .rows has the same without it") from None
    return pandas.DataFrame(rows)


def _flat(row: Json) -> Json:
    """A row of a table: objects within are flattened (interval.p5_us), lists left out."""
    flat: Json = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": held for inner, held in value.items() if not isinstance(held, (dict, list))})
        elif not isinstance(value, list):
            flat[key] = value
    return flat


@dataclass(frozen=True)
class Interval:
    """Where public steps like this one lay, by how far they lay from their predictions; microseconds."""
    p5_us: float
    p50_us: float
    p95_us: float


def interval_of(data: Optional[Json]) -> Optional[Interval]:
    return None if data is None else _row(Interval, data)


class Result:
    """A document of the tool, with how it was asked for."""

    def __init__(self, words: Words, document: Json) -> None:
        self._words: List[Word] = list(words)
        self._page: Optional[str] = None
        self.document = document

    @property
    def notes(self) -> List[str]:
        """What the figures rest on, a sentence each."""
        return list(self.document.get("notes", []))

    def _table(self) -> List[Json]:
        return list(self.document.get("rows", []))

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a DataFrame; columns are called as the attributes of a row. Needs pandas."""
        return _frame([_flat(row) for row in self._table()])

    def report(self) -> str:
        """The text that the command line prints. It is worked out again."""
        return call(self._words)

    def html(self) -> str:
        """The page that --html writes: one HTML document that needs no network. It is worked out again, once."""
        if self._page is None:
            self._page = made_file(self._words, "--html", "page.html")[0]
        return self._page

    def save(self, path: PathLike) -> str:
        """Writes the document as .json, its table as .csv, or the page as .html, by the name's ending; returns the path."""
        ending = os.path.splitext(os.fspath(path))[1]
        if ending == ".csv":
            text = call([*self._words, "--csv"])
        elif ending == ".html":
            text = self.html()
        else:
            text = json.dumps(self.document, indent=1) + "\n"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return os.fspath(path)

    def _text_html(self) -> str:
        return f"<pre>{html.escape(self.report())}</pre>"

    def _repr_html_(self) -> str:
        return (f'<iframe srcdoc="{html.escape(self.html())}" style="width:100%;height:640px;border:0" '
                'sandbox="allow-scripts allow-popups"></iframe>')


# ------------------------------------------------------------------ explore


@dataclass(frozen=True)
class PolicyRow:
    """A policy with its step, as explore has it. Times are microseconds of a step in steady state."""
    policy: str  # as --policy takes it; of a plan its file, of an own policy its name
    rule: Optional[str]  # the policy without its options; None of a plan
    buckets: int
    micro_steps: int  # per update
    step_us: float
    exposed_us: float  # communication that nothing hides
    communication_us: float  # any collective in flight
    compute_us: float
    resident_bytes: int  # what a rank keeps all step long, activations aside
    fits: bool  # that, into the device
    threshold_bytes: Optional[int]  # that was swept
    first_bucket_bytes: Optional[int]
    mode: Optional[str]  # "view" or "copy"
    wait: Optional[str]
    runs: bool  # whether the framework can be told to do this
    as_run: bool  # whether it makes something else of it; the step is of that
    in_words: str  # the framework and setting that it stands for
    alike: Optional[bool] = None  # cannot be told from the best; None of a machine that was measured

    def __repr__(self) -> str:
        fit = "" if self.fits else ", does not fit"
        run = " (as run there)" if self.as_run else ""
        return f"PolicyRow({self.policy!r}{run}, {_ms(self.step_us)}, exposed {_ms(self.exposed_us)}{fit})"


class TextResult(Result):
    """One that has no page: a notebook shows its text."""

    def _repr_html_(self) -> str:
        return self._text_html()


class OnMachine(Result):
    """What was tried on one machine."""

    @property
    def cluster(self) -> str:
        return str(self.document["cluster"])

    @property
    def world_size(self) -> int:
        return int(self.document["world_size"])


class Exploration(OnMachine):
    """Every policy that was tried on a workload and a machine, the best of them, and the lower bound."""

    @property
    def workload(self) -> str:
        return str(self.document["workload"])

    @property
    def rows(self) -> List[PolicyRow]:
        return [_row(PolicyRow, row) for row in self.document["rows"]]

    @property
    def best(self) -> PolicyRow:
        """The fastest that the framework can run and that trains the same job."""
        return _row(PolicyRow, self.document["best"])

    @property
    def now_us(self) -> Optional[float]:
        """What there is now takes: what was recorded, else what the framework does by itself; None where neither was tried."""
        now = self.document["now"]
        return None if now is None else float(now["step_us"])

    @property
    def gain_us(self) -> Optional[float]:
        """What the best gains against now; of a recorded step on its own machine it lies between document["now"]["gain"]'s ends."""
        return None if self.now_us is None else self.now_us - self.best.step_us / self.best.micro_steps

    @property
    def lower_bound_us(self) -> Optional[float]:
        """No schedule of the kinds that the bound covers is faster on this model; None where none is known."""
        found: Optional[float] = self.document["lower_bound_us"]
        return found

    @property
    def gap_percent(self) -> Optional[float]:
        """By how much the best that the bound covers is above it."""
        found: Optional[float] = self.document["gap_percent"]
        return found

    @property
    def left_out(self) -> List[str]:
        """Policies that do not apply, with the reason."""
        return list(self.document["left_out"])

    def __repr__(self) -> str:
        gap = "" if self.gap_percent is None else f", gap {self.gap_percent:.2f} %"
        return (f"<Exploration: {self.workload} on {self.cluster}: {len(self.rows)} rows, best "
                f"{self.best.policy}, {_ms(self.best.step_us)}{gap}; predicted>")


@dataclass(frozen=True)
class Stage:
    """A pipeline stage of a job: where its step goes, in microseconds, and its memory."""
    data: Json = field(repr=False)
    memory_bytes: int

    @property
    def compute_us(self) -> float:
        return float(self.data["compute_us"])

    @property
    def bubble_us(self) -> float:
        return float(self.data["bubble_us"])


@dataclass(frozen=True)
class JobRow:
    """A job with its step, as explore of a job has it."""
    change: str  # what differs from the job as asked
    job: str  # all of it, as Job and --job take it
    policy: str  # its decisions, as --policy takes them
    step_us: float
    lower_bound_us: float  # no schedule of this layout, batch, sharding and recomputation is faster
    interval: Optional[Interval]  # where public steps like it lay; None where nothing is known
    tokens_per_s_per_gpu: float
    model_flop_per_s_per_gpu: float
    mfu: Optional[float]  # share of the dense peak rate, 0 to 1; None where that is unknown
    peak_bytes: int  # memory of the fullest stage's rank
    fits: bool  # that, into the device
    room: str  # "yes", "may" or "no": with where that may lie
    said_by: Optional[str]  # the framework that can be told all of it; None where none can
    alike: bool  # too close to the best for public measurements to bear out the order
    stages: Tuple[Stage, ...] = field(repr=False, default=())

    def __repr__(self) -> str:
        mfu = "" if self.mfu is None else f", MFU {100 * self.mfu:.1f} %"
        fit = {"yes": "", "may": ", may fit", "no": ", does not fit"}[self.room]
        return f"JobRow({self.change!r}, {_ms(self.step_us)}{mfu}, {self.peak_bytes / 2**30:.1f} GiB{fit})"


def _job_row(data: Json) -> JobRow:
    stages = tuple(Stage({key: value for key, value in one.items() if key != "memory_bytes"}, one["memory_bytes"])
                   for one in data["stages"])
    return _row(JobRow, data, interval=interval_of(data["public_interval"]), stages=stages)


class JobExploration(OnMachine):
    """A job and its variants, or all layouts of a model, the fastest first."""

    @property
    def job(self) -> str:
        return str(self.document["job"])

    @property
    def tokens(self) -> int:
        """Of a step, over all ranks."""
        return int(self.document["tokens"])

    @property
    def rows(self) -> List[JobRow]:
        return [_job_row(row) for row in self.document["rows"]]

    @property
    def best(self) -> Optional[JobRow]:
        """What to take: it fits, a framework can be told it, and it can be told from the others; None where there is none."""
        at = self.document["best"]
        return None if at is None else _job_row(self.document["rows"][at])

    @property
    def asked(self) -> Optional[JobRow]:
        """The job as it was asked; None where no layout was."""
        return next((row for row in self.rows if row.change == "as asked"), None)

    @property
    def left_out(self) -> List[str]:
        return list(self.document["left_out"])

    def __repr__(self) -> str:
        best = "none fits" if self.best is None else f"best {self.best.change}, {_ms(self.best.step_us)}"
        return f"<JobExploration: {self.job} on {self.cluster}: {len(self.rows)} rows, {best}; predicted>"


@dataclass(frozen=True)
class Pair:
    """The best policy of a workload on a machine."""
    workload: str
    cluster: str
    world_size: int
    best: str
    step_us: float
    exposed_us: float
    ddp_default_step_us: Optional[float]
    lower_bound_us: Optional[float]
    gap_percent: Optional[float]


class Explorations(TextResult):
    """Several workloads or machines: a Pair each in `rows`, the Exploration of each in `each`."""

    @property
    def rows(self) -> List[Pair]:
        return [_row(Pair, row) for row in self.document["rows"]]

    @property
    def each(self) -> List[Exploration]:
        return [Exploration([], one) for one in self.document["explorations"]]

    def __iter__(self) -> Iterator[Exploration]:
        return iter(self.each)

    def html(self) -> str:
        raise InputError("explore: the page is of one workload on one machine: give one of each")

    def __repr__(self) -> str:
        return f"<Explorations: {len(self.rows)} pairs of workload and machine; predicted>"


# ------------------------------------------------------------------ plan and predict


class Plan(Result):
    """A schedule with the program that it belongs to and what is predicted for it: a plan file."""

    def __init__(self, words: Words, text: str, name: str = "plan.json") -> None:
        super().__init__(words, json.loads(text))
        self.text = text  # of the plan file
        self.name = name

    @classmethod
    def load(cls, path: PathLike) -> "Plan":
        """A plan file, of this version or an older one."""
        call(["show", os.fspath(path), "--json"])  # refuses what is no plan
        with open(path, encoding="utf-8") as file:
            return cls(["predict", os.fspath(path)], file.read(), os.path.basename(os.fspath(path)))

    @property
    def policy(self) -> str:
        return str(self.document["policy"])

    @property
    def workload(self) -> str:
        return str(self.document["workload"])

    @property
    def cluster(self) -> str:
        return str(self.document["cluster"])

    @property
    def buckets(self) -> List[Json]:
        """In launch order: id, bytes, elements, gradients, collective, mode, stream, launch, wait (docs/json.md)."""
        return list(self.document["buckets"])

    def _predicted(self, key: str) -> Optional[float]:
        found: Optional[float] = self.document.get("predicted", {}).get(key)
        return found

    @property
    def step_us(self) -> Optional[float]:
        """Predicted; None where the file has no prediction."""
        return self._predicted("step_us")

    @property
    def exposed_us(self) -> Optional[float]:
        return self._predicted("exposed_us")

    @property
    def lower_bound_us(self) -> Optional[float]:
        return self._predicted("lower_bound_us")

    def _table(self) -> List[Json]:
        return self.buckets

    def as_word(self) -> Document:
        return Document(self.name, self.text)

    def save(self, path: PathLike) -> str:
        """Writes the plan file, or the page where the name ends in .html; returns the path."""
        if os.path.splitext(os.fspath(path))[1] == ".html":
            return super().save(path)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)
        return os.fspath(path)

    def html(self) -> str:
        if self._page is None:
            self._page = made_file(["predict", self.as_word()], "--html", "page.html")[0]
        return self._page

    def report(self) -> str:
        """What `dovetail predict` prints of it."""
        return call(["predict", self.as_word()])

    def __repr__(self) -> str:
        step = "" if self.step_us is None else f", {_ms(self.step_us)}; predicted"
        return f"<Plan: {self.policy} of {self.workload} on {self.cluster}: {len(self.buckets)} buckets{step}>"


@dataclass(frozen=True)
class Prediction:
    """One plan on one machine, simulated. Times are microseconds of the median step."""
    plan: str
    policy: str
    workload: str
    cluster: str
    world_size: int
    buckets: int
    step_us: float
    exposed_us: float
    communication_us: float
    compute_us: float
    overlap_ratio: Optional[float]  # overlapped / all communication
    breakdown: Json = field(repr=False)  # what the compute stream does, microseconds
    stages: List[Json] = field(repr=False)
    collectives: List[Json] = field(repr=False)  # name, size_bytes, start_us, end_us, exposed_us
    critical_path: List[Json] = field(repr=False)
    notes: List[str] = field(repr=False)
    interval: Optional[Json] = None  # p10_us, p50_us, p90_us where the spread of costs was measured
    public_interval: Optional[Json] = None  # p5_us, p50_us, p95_us of public steps like it


class Predictions(Result):
    """Plans on machines, a Prediction each."""

    @property
    def rows(self) -> List[Prediction]:
        return [_row(Prediction, row) for row in self.document["rows"]]

    @property
    def notes(self) -> List[str]:
        return list(dict.fromkeys(note for row in self.rows for note in row.notes))

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> Prediction:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.document["rows"])

    def _repr_html_(self) -> str:
        return super()._repr_html_() if len(self) == 1 else self._text_html()  # a page is of one plan on one machine

    def __repr__(self) -> str:
        shown = ", ".join(f"{row.plan} on {row.cluster} {_ms(row.step_us)}" for row in self.rows[:3])
        return f"<Predictions: {shown}{', ...' if len(self) > 3 else ''}; predicted>"


# ------------------------------------------------------------------ diagnose, compare, export


@dataclass(frozen=True)
class Finding:
    """A cause of lost time, with what it takes of a step."""
    kind: str
    amount_us: float
    of_us: float
    share: float  # of the step, 0 to 1


class Diagnosis(Result):
    """Why a recorded step is slow, and what would help."""

    @property
    def headline(self) -> str:
        """The one sentence to read first."""
        return str(self.document["headline"])

    @property
    def sentences(self) -> List[str]:
        return list(self.document["sentences"])

    @property
    def answer(self) -> Optional[Json]:
        """What the report begins with: set (lines to paste), why_nothing, gives, left; None where there is no work to diagnose."""
        found: Optional[Json] = self.document["answer"]
        return found

    @property
    def collectives(self) -> List[Json]:
        """Each kind and size by itself: own_us, bus_gb_per_s, and the shipped machine's."""
        return list(self.document["collectives"])

    @property
    def findings(self) -> List[Finding]:
        return [_row(Finding, one) for one in self.document["findings"]]

    @property
    def ranks(self) -> List[Json]:
        """A document for each rank: steps, replay, host, what_ifs (docs/json.md)."""
        return list(self.document["ranks"])

    @property
    def settings(self) -> List[Json]:
        """Bucket settings of the framework with their gain_us and its interval; empty where none was weighed."""
        return list((self.document["buckets"] or {}).get("settings", []))

    @property
    def not_known(self) -> List[str]:
        return list(self.document["not_known"])

    @property
    def notes(self) -> List[str]:
        return list(self.document["how_read"])

    def _table(self) -> List[Json]:
        return [{"rank": rank["rank"], **_flat(step)} for rank in self.ranks for step in rank["steps"]]

    def __repr__(self) -> str:
        return f"<Diagnosis: {self.headline}>"


class Comparison(Result):
    """A predicted trace beside its measurement; times are microseconds (docs/json.md has the sections)."""

    @property
    def step_time(self) -> Json:
        return dict(self.document["step_time"])

    def _table(self) -> List[Json]:
        return list(self.document["buckets"])

    def __repr__(self) -> str:
        return f"<Comparison: step {self.step_time}>"


class Difference(TextResult):
    """What moved between two traces, the largest change first; change = second - first, microseconds."""

    @property
    def rows(self) -> List[Json]:
        return list(self.document["rows"])

    @property
    def whole(self) -> List[Json]:
        return list(self.document["whole"])

    def __repr__(self) -> str:
        return f"<Difference: {len(self.rows)} classes of ops and collectives>"


@dataclass(frozen=True)
class BandwidthRow:
    """A collective of one size on two machines: bus bandwidth as nccl-tests defines it, 10^9 bytes per second."""
    collective: str
    ranks: int
    size_bytes: int
    first_busbw_gb_per_s: float
    second_busbw_gb_per_s: float
    ratio: float  # second / first


class MachineComparison(TextResult):
    """What two machines have in common: collectives over as many ranks, at the sizes of either that both cover."""

    @property
    def rows(self) -> List[BandwidthRow]:
        return [_row(BandwidthRow, row) for row in self.document["rows"]]

    def __repr__(self) -> str:
        ratios = [row.ratio for row in self.rows]
        return f"<MachineComparison: {len(ratios)} sizes of collectives, ratio {min(ratios):.2f} to {max(ratios):.2f}>"


class Export:
    """A plan or a job in a framework's own words."""

    def __init__(self, text: str, report: str, path: Optional[str]) -> None:
        self.text = text  # of the file
        self.report = report  # what is given up, what it costs, and how it is used
        self.path = path  # where it was written; None: nowhere yet

    def save(self, path: PathLike) -> str:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)
        self.path = os.fspath(path)
        return self.path

    def __repr__(self) -> str:
        return f"<Export: {self.report.splitlines()[0] if self.report else self.path}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.report)}\n{html.escape(self.text)}</pre>"


AnyComparison = Union[Comparison, Difference, MachineComparison]
AnyExploration = Union[Exploration, Explorations, JobExploration]
