"""Connects to a Ray cluster, starts agents on its nodes, and carries the calls to them.

Only this module, `ray_resources.py`, `autoscaler_withdrawal.py` and `agent_actor.py` import Ray.

    ray.address=local       a cluster of our own, on loopback, gone with the sweep
    ray.address=auto        the cluster that this machine is a node of
    ray.address=HOST:PORT   the cluster with that head

A bare `ray.init()` would join whatever a killed cluster has left behind. Ray schedules none of the
trials: admission does, and agents therefore request no CPU and no GPU of Ray. With `ray.claim` the
devices that admission may use are claimed from Ray besides (`claims.py`).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from automl.config import RayConfig
from automl.config.execution import AUTO_ADDRESS, LOCAL_ADDRESS, is_host_and_port
from automl.errors import ConfigError
from automl.execution.cluster import agent_actor
from automl.execution.cluster import node_messages as m
from automl.execution.cluster.agent_actor import RETRIED, AgentActor, ClusterHeadWatch
from automl.execution.cluster.claims import ResourceClaim
from automl.execution.cluster.node import (
    AgentConnection,
    AgentEndedError,
    AgentSilentError,
    NodeDeadError,
)
from automl.execution.cluster.node_files import CodeFolder
from automl.execution.cluster.nodes import ClusterMachine, NodeMismatchError
from automl.execution.cluster.ray_resources import (
    LibraryCallCount,
    LibraryGivenBackError,
    RayAutoscaler,
    RayClaim,
)
from automl.record.texts import fit_line
from automl.trial import DeviceKind, ProcessEntry

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 5.0
_START_SECONDS = 120.0
"""Longest start of an agent: a node may have to unpack our code first."""
_CALL_SECONDS = 1.0
_CLOSE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 5.0
"""Longest wait for calls of other threads, each of which takes `_CALL_SECONDS` or less."""
_WITHOUT_A_HEAD_SECONDS = 12.0
"""The sweep breaks off when the head was not reached for this long. Agents end their workers later,
so that trials which report in between write a checkpoint. Ray itself would end this process after a
minute."""
_GROUPS = {"poll": 1, "tell": 1}
"""Ray's concurrency groups of the actor: each method gets a thread of its own."""
_START_ONE = "Start one with: ray start --head, or use ray.address=local."


class RayCluster:
    """A cluster that this process is connected to."""

    def __init__(
        self, config: RayConfig, code: CodeFolder | None, target: str, open_config: object
    ) -> None:
        """Connect to the cluster.

        `target` makes the agent of a node from the node's name, its CPUs and `open_config`. `code`
        goes to the nodes; None: the packages installed there are enough. Raises ConfigError.
        """
        self._target, self._open_config = target, open_config
        self._ray = _imported(config)
        self._printing = self._ray._private.worker.print_to_stdstream
        _connect(self._ray, config, code)
        self._head: str = self._ray.get_runtime_context().gcs_address
        self._in_use = LibraryCallCount()
        self._lost: str | None = None
        self._watch = ClusterHeadWatch(
            lambda: agent_actor.accepts_connections(self._head), _WITHOUT_A_HEAD_SECONDS, self._lose
        )
        self._watch.start()

    def machines(self) -> Sequence[ClusterMachine]:
        return [
            ClusterMachine(
                node["NodeID"], node["NodeManagerHostname"], node["Resources"].get("CPU", 0.0)
            )
            for node in _alive(self._ray, self._head, self._in_use)
        ]

    def start(self, machine: ClusterMachine, name: str) -> AgentConnection:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        config = (name, machine.n_cpus, self._open_config)
        with self._in_use.call():
            actor = (
                self._ray.remote(concurrency_groups=_GROUPS)(AgentActor)
                .options(
                    num_cpus=0,
                    num_gpus=0,
                    max_restarts=0,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(machine.id, soft=False),
                )
                .remote(self._target, config)
            )
        connection = _RayAgentConnection(self._ray, self._in_use, self._head, actor, machine.id)
        try:
            connection.open(name)
        except BaseException:
            connection.kill()
            raise
        return connection

    def share(self, entry: ProcessEntry) -> object:
        """Put the entry into Ray's object store, from which each node fetches it once.

        Ray writes to a file what the store cannot hold, and frees it with the last reference.
        """
        return self._ray.put(entry)

    def claim(
        self, kind: DeviceKind, target: str, n_cpus: int, name_of: Callable[[str], str | None]
    ) -> ResourceClaim:
        """Request a GPU, or `n_cpus` CPUs of one node, of the cluster (`RayClaim`)."""
        return RayClaim(self._ray, self._in_use, kind, target, n_cpus, name_of)

    @property
    def autoscaler(self) -> RayAutoscaler:
        """The service that adds nodes to the cluster, if it has one."""
        return RayAutoscaler(self._ray, self._in_use)

    def lost(self) -> str | None:
        return self._lost

    def close(self) -> None:
        self._watch.close()
        self._in_use.end(_SHUTDOWN_SECONDS)
        self._ray._private.worker.print_to_stdstream = self._printing
        self._ray.shutdown()

    def _lose(self) -> None:
        self._lost = f"its head ({self._head}) was not reached for {_WITHOUT_A_HEAD_SECONDS:g} s"


class _RayAgentConnection:
    """Carries calls to one agent; waits again for the answer to a call instead of repeating it."""

    def __init__(
        self, ray: Any, in_use: LibraryCallCount, head: str, actor: Any, node_id: str
    ) -> None:
        self._ray, self._in_use = ray, in_use
        self._head, self._actor, self._node_id = head, actor, node_id
        self._about: Mapping[str, Any] = {}
        self._port: str | None = None
        """Address of a port that is open while the agent's process lives; None if unreachable."""
        self._pending: dict[str, tuple[Any, float]] = {}
        """Unanswered calls by method: Ray's reference to the answer, and when it was called."""

    def open(self, name: str) -> None:
        """Compare versions, and open the agent. Raises the errors of `ClusterBackend.start`."""
        from ray.exceptions import GetTimeoutError, RayError

        try:
            self._about = self._answer(self._actor.about, _START_SECONDS)
            _compare(name, agent_actor.software_versions(), self._about["versions"])
            port: str | None = self._about["port"]
            self._port = (
                port if port is not None and agent_actor.accepts_connections(port) else None
            )
            self._answer(self._actor.open, _START_SECONDS)
        except LibraryGivenBackError as error:
            raise AgentEndedError(str(error)) from None
        except GetTimeoutError:
            raise AgentSilentError(
                f"node {name}: no agent within {_START_SECONDS:g} s (its Ray workers' logs say why)"
            ) from None
        except RayError as error:
            if not self._node_lives():
                raise AgentEndedError(f"node {name} died while its agent was started") from error
            raise NodeMismatchError(
                f"node {name} cannot run our agent: {_last_line(error)}. Install there what is "
                "here: pip install 'automl-sweep[ray]', with the same versions."
            ) from error

    def set_up(self, entry: object, work: m.NodeSetup) -> bool:
        while True:
            try:
                shared, _ = self._call("set_up", "tell", entry, work)
            except NodeDeadError:
                raise
            except AgentSilentError:  # a large table takes long to reach a node
                continue
            return bool(shared)

    def poll(
        self, n_taken: int, echo_seconds: float | None, commands: m.CommandBatch
    ) -> tuple[m.PollAnswer, float]:
        answer, sent_seconds = self._call("poll", "poll", n_taken, echo_seconds, commands)
        return answer, sent_seconds

    def tell(self, commands: m.CommandBatch) -> None:
        self._call("tell", "tell", commands)

    def close(self) -> None:
        with suppress(Exception):  # the agent has ended, or is cut off
            self._answer(self._actor.close, _CLOSE_SECONDS, concurrency_group="tell")

    def kill(self) -> None:
        with suppress(Exception), self._in_use.call():
            self._ray.kill(self._actor)

    def _answer(self, method: Any, timeout_seconds: float, **options: object) -> Any:
        """Call a method of the actor, which may be called twice, and return its answer.

        It is waited for in short calls of Ray, since the cluster may be given back meanwhile.
        Raises LibraryGivenBackError, and the errors of `ray.get`.
        """
        from ray.exceptions import GetTimeoutError

        with self._in_use.call():
            answer = method.options(**RETRIED, **options).remote()
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._in_use.call():
                try:
                    return self._ray.get(answer, timeout=_CALL_SECONDS)
                except GetTimeoutError:
                    if time.monotonic() > deadline:
                        raise

    def _call(self, method: str, group: str, *args: object) -> tuple[Any, float]:
        from ray.exceptions import (
            ActorUnavailableError,
            GetTimeoutError,
            RayActorError,
            RaySystemError,
        )

        try:
            with self._in_use.call():
                if method not in self._pending:
                    remote = getattr(self._actor, method).options(concurrency_group=group).remote
                    self._pending[method] = remote(*args), time.monotonic()
                answer, sent_seconds = self._pending[method]
                value = self._ray.get(answer, timeout=_CALL_SECONDS)
        except LibraryGivenBackError as error:
            raise AgentEndedError(str(error)) from None
        except GetTimeoutError:
            raise self._error_of_silence() from None
        except ActorUnavailableError as error:
            del self._pending[method]
            raise AgentSilentError(_last_line(error)) from error
        except RayActorError as error:
            raise self._error_of_end(error) from error
        except RaySystemError as error:  # Ray's own process on this machine has ended
            del self._pending[method]
            raise self._error_of_silence() from error
        del self._pending[method]
        return value, sent_seconds

    def _error_of_silence(self) -> Exception:
        """Return the error for a silent agent; processes on a node that is cut off may live on."""
        if self._is_gone():
            return AgentEndedError("its agent's process ended")
        if self._node_lives():
            return AgentSilentError("no word from its agent")
        return self._error_of_dead_node("Ray says that it is dead")

    def _error_of_end(self, error: Exception) -> Exception:
        """Return the error for an agent that Ray reports as ended.

        The report is trusted where the agent's node lives, which has then seen the end.
        """
        if self._is_gone() or self._node_lives():
            return AgentEndedError(f"its agent ended: {_last_line(error)}")
        return self._error_of_dead_node(_last_line(error))

    def _error_of_dead_node(self, cause: str) -> Exception:
        """Return the error for a dead node; its machine may still say that the agent has ended."""
        refused = self._port is not None and agent_actor.refuses_connections(self._port)
        return AgentEndedError(cause) if refused else NodeDeadError(cause)

    def _is_gone(self) -> bool:
        """Return whether an agent on this machine has ended: the kernel knows before Ray does."""
        about = self._about
        is_here = bool(about.get("boot")) and about["boot"] == agent_actor.boot_id()
        return is_here and agent_actor.process_start(about["pid"]) != about["began"]

    def _node_lives(self) -> bool:
        return any(
            node["NodeID"] == self._node_id for node in _alive(self._ray, self._head, self._in_use)
        )


def _alive(ray: Any, head: str, in_use: LibraryCallCount) -> Sequence[Mapping[str, Any]]:
    """Return Ray's records of the living nodes; none where the cluster's head does not answer.

    No node is known then, and Ray would wait for the head until it ends this process.
    """
    from ray.exceptions import RayError

    if not agent_actor.accepts_connections(head):
        return []
    try:
        with in_use.call():
            return [node for node in ray.nodes() if node["Alive"]]
    except LibraryGivenBackError:
        return []
    except RayError as error:
        logger.debug("Ray does not say which nodes live: %s", _last_line(error))
        return []


def refuse_missing_ray() -> None:
    """Raise ConfigError if Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            "execution=ray needs Ray, which is not installed: pip install 'automl-sweep[ray]', or "
            "use execution=workers."
        )


def _imported(config: RayConfig) -> Any:
    refuse_missing_ray()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # or a late call starts a cluster of its own
    if config.address.startswith(
        (LOCAL_ADDRESS, "127.")
    ):  # or Ray takes the network's address instead
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")  # `node_files.py` says what goes
    import ray

    return ray


def _connect(ray: Any, config: RayConfig, code: CodeFolder | None) -> None:
    """Connect this process to the cluster. Raises ConfigError."""
    if ray.is_initialized():
        raise ConfigError(
            "execution=ray: this process is connected to a Ray cluster already: call "
            "ray.shutdown() before."
        )
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    options |= {"namespace": f"automl-{os.getpid()}", "configure_logging": False}
    if config.address == LOCAL_ADDRESS:
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    else:
        if code is not None:
            options["runtime_env"] = {"working_dir": str(code.folder), "excludes": [*code.excludes]}
        _find_head(ray, config.address)
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        with _command_line_hidden(ray):
            ray.init(address=config.address, **options)  # auto: with the token in ~/.ray
        ray._private.worker.print_to_stdstream = _to_log
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        ray.shutdown()
        raise ConfigError(
            f"ray.address={config.address}: no sweep can start on that cluster: "
            f"{_last_line(error)}. Start one with: ray start --head, and on each other node: ray "
            "start --address=HEAD:6379; start the sweep on one of its nodes." + _token_hint()
        ) from error


def _token_hint() -> str:
    """Return a hint on tokens for the error message: Ray itself only says it cannot connect."""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return " Is its token the one that RAY_AUTH_TOKEN or ~/.ray/auth_token has here?"
    return " If it takes nobody without a token, set RAY_AUTH_MODE=token and the token here, too."


def _find_head(ray: Any, address: str) -> str:
    """Return the address of the cluster's head, once a connection to it succeeds.

    Ray itself would try for minutes where nothing listens, as on the address that a killed head has
    left. Raises ConfigError.
    """
    found, setting = address, f"ray.address={address}"
    if address == AUTO_ADDRESS:
        if (variable := os.environ.get("RAY_ADDRESS", AUTO_ADDRESS)) not in ("", AUTO_ADDRESS):
            setting = f"RAY_ADDRESS={variable}"
            _check_variable(variable)
        found = _running_here(ray)
    host, _, port = found.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        place = "there" if found in setting else f"at {found}"
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{setting}: no Ray cluster {place} ({why}). {_START_ONE}") from error
    return found


def _check_variable(address: str) -> None:
    """Check the value of RAY_ADDRESS, which Ray uses for `auto`. Raises ConfigError."""
    if "://" in address:
        raise ConfigError(
            f"RAY_ADDRESS={address}: every report would pass through one more server. Start the "
            "sweep on the cluster's head node, or give ray.address=HOST:PORT."
        )
    if not is_host_and_port(address):
        raise ConfigError(
            f"RAY_ADDRESS={address}: must be HOST:PORT of a cluster's head where ray.address=auto. "
            "Correct or unset it, or give ray.address=local|HOST:PORT."
        )


def _running_here(ray: Any) -> str:
    """Return the address of this machine's cluster, as `ray.init` finds it. Raises ConfigError."""
    try:
        found: str = ray._private.services.get_ray_address_from_environment(AUTO_ADDRESS, None)
    except ConnectionError as error:
        raise ConfigError(
            f"ray.address={AUTO_ADDRESS}: no Ray cluster runs on this machine. {_START_ONE}"
        ) from error
    return found


@contextmanager
def _command_line_hidden(ray: Any) -> Iterator[None]:
    """Hide the command line from Ray, which shows it to all; it may contain a password."""
    utils = ray._private.utils
    before, utils.get_entrypoint_name = utils.get_entrypoint_name, lambda: "python -m automl"
    try:
        yield
    finally:
        utils.get_entrypoint_name = before


def _to_log(data: Mapping[str, Any], ignore_prefix: bool) -> None:
    """Log what Ray says of nodes that died, which it would print into the live table."""
    logger.debug("Ray: %s", fit_line(" ".join(data["lines"])))


def _compare(name: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """Raise NodeMismatchError unless a node has the versions that this process has."""
    names = [package for package in ours if theirs.get(package) != ours[package]]
    differ = [f"{package} {theirs.get(package)} (here {ours[package]})" for package in names]
    if differ:
        raise NodeMismatchError(
            f"node {name} has {', '.join(differ)}: install the same versions on every node."
        )


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return fit_line(lines[-1] if lines else type(error).__name__)
