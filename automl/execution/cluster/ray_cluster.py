"""Ray as what carries processes and data. Beside this module and `ray_resources.py`,
`ray_resources.py` and `autoscaler_withdrawal.py`, which are small, nothing imports it.

    ray.address=local       a cluster of our own, on loopback, gone with the sweep
    ray.address=auto        the one that this machine is a node of
    ray.address=HOST:PORT   the one with that head

A bare `ray.init()` would join whatever a killed cluster has left behind. Ray counts none of what
runs: admission is ours, and so agents ask it for no CPU and no GPU. With `ray.claim` what admission
may give away is held besides (`claims.py`).
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
from automl.config.execution import AUTO, LOCAL, is_host_and_port
from automl.errors import ConfigError
from automl.execution.cluster import agent_actor
from automl.execution.cluster import node_messages as m
from automl.execution.cluster.agent_actor import AgentActor, HeadWatch, began, this_boot, versions
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
"""How long an agent may take to be there: a node may have to unpack our code first."""
_CALL_SECONDS = 1.0
_CLOSE_SECONDS = 10.0
_SHUTDOWN_SECONDS = 5.0
"""How long calls of other threads are waited for, each of which takes `_CALL_SECONDS` or less."""
_WITHOUT_A_HEAD_SECONDS = 12.0
"""When the head was not reached for so long the sweep breaks off: before agents end their workers,
so that trials which report within that time write a checkpoint. Ray itself would end this process
after a minute."""
_GROUPS = {"poll": 1, "tell": 1}
_START_ONE = "Start one with: ray start --head, or use ray.address=local."


class RayCluster:
    """A cluster that this process is connected to."""

    def __init__(
        self, config: RayConfig, code: CodeFolder | None, target: str, open_config: object
    ) -> None:
        """Connect. `target` makes the agent of a node: of its name, its CPUs and `open_config`.
        `code` goes to the nodes; None: what is installed there is enough.

        Raises ConfigError.
        """
        self._target, self._open_config = target, open_config
        self._ray = _imported(config)
        self._printing = self._ray._private.worker.print_to_stdstream
        _connect(self._ray, config, code)
        self._head: str = self._ray.get_runtime_context().gcs_address
        self._in_use = LibraryCallCount()
        self._lost: str | None = None
        self._watch = HeadWatch(
            lambda: agent_actor.answers(self._head), _WITHOUT_A_HEAD_SECONDS, self._lose
        )
        self._watch.start()

    def machines(self) -> Sequence[ClusterMachine]:
        """See `ClusterBackend.machines`."""
        return [
            ClusterMachine(
                node["NodeID"], node["NodeManagerHostname"], node["Resources"].get("CPU", 0.0)
            )
            for node in _alive(self._ray, self._head, self._in_use)
        ]

    def start(self, machine: ClusterMachine, name: str) -> AgentConnection:
        """See `ClusterBackend.start`."""
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
        wire = _RayAgentConnection(self._ray, self._in_use, self._head, actor, machine.id)
        try:
            wire.open(name)
        except BaseException:
            wire.kill()
            raise
        return wire

    def share(self, entry: ProcessEntry) -> object:
        """In the object store, from which each node has it once; Ray puts into a file what is more
        than that holds, and frees it with the last that stands for it."""
        return self._ray.put(entry)

    def claim(
        self, kind: DeviceKind, target: str, n_cpus: int, name_of: Callable[[str], str | None]
    ) -> ResourceClaim:
        """A GPU, or so many CPUs of one node. See `RayClaim`."""
        return RayClaim(self._ray, self._in_use, kind, target, n_cpus, name_of)

    @property
    def autoscaler(self) -> RayAutoscaler:
        """What adds nodes to it, if anything does."""
        return RayAutoscaler(self._ray, self._in_use)

    def lost(self) -> str | None:
        """See `ClusterBackend.lost`."""
        return self._lost

    def close(self) -> None:
        """See `ClusterBackend.close`."""
        self._watch.close()
        self._in_use.end(_SHUTDOWN_SECONDS)
        self._ray._private.worker.print_to_stdstream = self._printing
        self._ray.shutdown()

    def _lose(self) -> None:
        self._lost = f"its head ({self._head}) was not reached for {_WITHOUT_A_HEAD_SECONDS:g} s"


class _RayAgentConnection:
    """Calls to one agent. What was asked and is not answered is waited for again."""

    def __init__(
        self, ray: Any, in_use: LibraryCallCount, head: str, actor: Any, node_id: str
    ) -> None:
        self._ray, self._in_use = ray, in_use
        self._head, self._actor, self._node_id = head, actor, node_id
        self._about: Mapping[str, Any] = {}
        self._port: str | None = None
        """That tells whether its process lives; None: nobody reaches it."""
        self._asked: dict[str, tuple[Any, float]] = {}

    def open(self, name: str) -> None:
        """Compare versions, and open the agent. Raises as `ClusterBackend.start`."""
        from ray.exceptions import GetTimeoutError, RayError

        try:
            self._about = self._answer(self._actor.about, _START_SECONDS)
            _compare(name, versions(), self._about["versions"])
            port: str | None = self._about["port"]
            self._port = port if port is not None and agent_actor.answers(port) else None
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
            except AgentSilentError:  # a table takes its time to a node
                continue
            return bool(shared)

    def poll(
        self, n_taken: int, echo_seconds: float | None, told: m.CommandsTold
    ) -> tuple[m.PollAnswer, float]:
        polled, sent = self._call("poll", "poll", n_taken, echo_seconds, told)
        return polled, sent

    def tell(self, told: m.CommandsTold) -> None:
        self._call("tell", "tell", told)

    def close(self) -> None:
        with suppress(Exception):  # it has ended, or is cut off
            self._answer(self._actor.close.options(concurrency_group="tell"), _CLOSE_SECONDS)

    def kill(self) -> None:
        with suppress(Exception), self._in_use.call():
            self._ray.kill(self._actor)

    def _answer(self, method: Any, timeout_seconds: float) -> Any:
        """Waited for in pieces: the cluster may be given back meanwhile. Raises GivenBackError, and
        what `ray.get` does."""
        from ray.exceptions import GetTimeoutError

        with self._in_use.call():
            asked = method.remote()
        ends = time.monotonic() + timeout_seconds
        while True:
            with self._in_use.call():
                try:
                    return self._ray.get(asked, timeout=_CALL_SECONDS)
                except GetTimeoutError:
                    if time.monotonic() > ends:
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
                if method not in self._asked:
                    remote = getattr(self._actor, method).options(concurrency_group=group).remote
                    self._asked[method] = remote(*args), time.monotonic()
                answer, sent = self._asked[method]
                value = self._ray.get(answer, timeout=_CALL_SECONDS)
        except LibraryGivenBackError as error:
            raise AgentEndedError(str(error)) from None
        except GetTimeoutError:
            raise self._silent() from None
        except ActorUnavailableError as error:
            del self._asked[method]
            raise AgentSilentError(_last_line(error)) from error
        except RayActorError as error:
            raise self._ended(error) from error
        except RaySystemError as error:  # Ray's own process on this machine has ended
            del self._asked[method]
            raise self._silent() from error
        del self._asked[method]
        return value, sent

    def _silent(self) -> Exception:
        """Nothing is known of what runs on a node that is only cut off."""
        if self._is_gone():
            return AgentEndedError("its agent's process ended")
        if self._node_lives():
            return AgentSilentError("no word from its agent")
        return self._dead("Ray says that it is dead")

    def _ended(self, error: Exception) -> Exception:
        """Ray's word on an agent counts where its node lives to have seen its end."""
        if self._is_gone() or self._node_lives():
            return AgentEndedError(f"its agent ended: {_last_line(error)}")
        return self._dead(_last_line(error))

    def _dead(self, cause: str) -> Exception:
        """A node; what its processes do is not known, unless its machine says that the agent has
        ended."""
        refused = self._port is not None and agent_actor.refuses(self._port)
        return AgentEndedError(cause) if refused else NodeDeadError(cause)

    def _is_gone(self) -> bool:
        """Of an agent on this machine the kernel knows more than Ray, and sooner."""
        about = self._about
        is_here = bool(about.get("boot")) and about["boot"] == this_boot()
        return is_here and began(about["pid"]) != about["began"]

    def _node_lives(self) -> bool:
        return any(
            node["NodeID"] == self._node_id for node in _alive(self._ray, self._head, self._in_use)
        )


def _alive(ray: Any, head: str, in_use: LibraryCallCount) -> Sequence[Mapping[str, Any]]:
    """None where the cluster's head does not answer: nothing is known of any then, and Ray would
    wait for it until it ends this process."""
    from ray.exceptions import RayError

    if not agent_actor.answers(head):
        return []
    try:
        with in_use.call():
            return [node for node in ray.nodes() if node["Alive"]]
    except LibraryGivenBackError:
        return []
    except RayError as error:
        logger.debug("Ray does not say which nodes live: %s", _last_line(error))
        return []


def _imported(config: RayConfig) -> Any:
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            "execution=ray needs Ray, which is not installed: pip install 'automl-sweep[ray]', or "
            "use execution=workers."
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # or a late call starts a cluster of its own
    if config.address.startswith((LOCAL, "127.")):  # or Ray takes the network's address instead
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")  # `node_files.py` says what goes
    import ray

    return ray


def _connect(ray: Any, config: RayConfig, code: CodeFolder | None) -> None:
    """Raises ConfigError."""
    if ray.is_initialized():
        raise ConfigError(
            "execution=ray: this process is connected to a Ray cluster already: call "
            "ray.shutdown() before."
        )
    how: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    how |= {"namespace": f"automl-{os.getpid()}", "configure_logging": False}
    if config.address == LOCAL:
        how |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    else:
        if code is not None:
            how["runtime_env"] = {"working_dir": str(code.folder), "excludes": [*code.excludes]}
        _look_for(ray, config.address)
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        with _unnamed(ray):
            ray.init(address=config.address, **how)  # auto: with the token in ~/.ray
        ray._private.worker.print_to_stdstream = _to_log
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        ray.shutdown()
        raise ConfigError(
            f"ray.address={config.address}: no sweep can start on that cluster: "
            f"{_last_line(error)}. Start one with: ray start --head, and on each other node: ray "
            "start --address=HEAD:6379; start the sweep on one of its nodes." + _token_hint()
        ) from error


def _token_hint() -> str:
    """Ray says only that it cannot connect."""
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return " Is its token the one that RAY_AUTH_TOKEN or ~/.ray/auth_token has here?"
    return " If it takes nobody without a token, set RAY_AUTH_MODE=token and the token here, too."


def _look_for(ray: Any, address: str) -> str:
    """The cluster's head, which listens. Ray itself would try for minutes where nothing listens, as
    on the address that a killed head has left. Raises ConfigError."""
    found, where = address, f"ray.address={address}"
    if address == AUTO:
        if (given := os.environ.get("RAY_ADDRESS", AUTO)) not in ("", AUTO):
            where = f"RAY_ADDRESS={given}"
            _check_given(given)
        found = _running_here(ray)
    host, _, port = found.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        at = "there" if found in where else f"at {found}"
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{where}: no Ray cluster {at} ({why}). {_START_ONE}") from error
    return found


def _check_given(address: str) -> None:
    """Of RAY_ADDRESS, which Ray takes for `auto`. Raises ConfigError."""
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
    """The address of the cluster that this machine is a node of, as `ray.init` would find it.
    Raises ConfigError."""
    try:
        found: str = ray._private.services.get_ray_address_from_environment(AUTO, None)
    except ConnectionError as error:
        raise ConfigError(
            f"ray.address={AUTO}: no Ray cluster runs on this machine. {_START_ONE}"
        ) from error
    return found


@contextmanager
def _unnamed(ray: Any) -> Iterator[None]:
    """Ray keeps a job's command line, in which there may be a password, for all to see."""
    utils = ray._private.utils
    before, utils.get_entrypoint_name = utils.get_entrypoint_name, lambda: "python -m automl"
    try:
        yield
    finally:
        utils.get_entrypoint_name = before


def _to_log(data: Mapping[str, Any], ignore_prefix: bool) -> None:
    """What Ray says of nodes that died, else printed into the live table."""
    logger.debug("Ray: %s", fit_line(" ".join(data["lines"])))


def _compare(name: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """Raises NotTheSameError."""
    differ = [
        f"{what} {theirs.get(what)} (here {v})" for what, v in ours.items() if theirs.get(what) != v
    ]
    if differ:
        raise NodeMismatchError(
            f"node {name} has {', '.join(differ)}: install the same versions on every node."
        )


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return fit_line(lines[-1] if lines else type(error).__name__)
