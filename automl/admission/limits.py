"""Defines how much of the devices the config lets a sweep take.

The limits are plain values; placement_policy.py applies them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from automl.admission.governor import SharingLimit
from automl.devices.device_reading import DeviceSnapshot, HostState
from automl.trial import DeviceId, host_device_of

STALE_SECONDS = 5.0
"""A reading of devices that is older admits no trial: ten readings have then failed."""


@dataclass(frozen=True)
class AdmissionLimits:
    """How much of the devices this sweep may take."""

    max_concurrent_trials: int | None
    """Most trials at once over all devices; None: as many as the devices take."""
    headroom_bytes: int
    stale_seconds: float = STALE_SECONDS
    max_per_gpu: int = 16
    max_on_host: int = 16
    """Number of trials that this machine's cores keep busy."""
    sharing: Mapping[DeviceId, SharingLimit] = field(default_factory=dict)
    """Measured limits of how many trials share a device; a device that is not named has none."""
    on_hosts: Mapping[DeviceId, int] = field(default_factory=dict)
    """Number of trials that the cores of each machine of a cluster keep busy."""
    gpus_per_trial: int = 1
    helpers_bytes: int = 0
    """Main memory of the processes that a trial's own process starts, beside its own."""

    def max_trials_on(self, device: DeviceId) -> int:
        """Return the most trials on a device."""
        on_host = self.on_hosts.get(device, self.max_on_host)
        most = on_host if device.on_host else self.max_per_gpu
        found = self.sharing.get(device)
        return most if found is None else min(most, found.n_most)

    def with_places_of(self, devices: Iterable[DeviceSnapshot]) -> AdmissionLimits:
        """Return the limits with the machines' own numbers of cores."""
        found = {d.address: d.n_places for d in devices if d.n_places is not None}
        return replace(self, on_hosts=found) if found != self.on_hosts else self

    def beside_gpus(self, node: str, host: HostState | None) -> int:
        """Return how many trials the cores of a machine keep busy, at least 1.

        A machine to which the cluster gives no core still has one for the trials on its GPUs.
        """
        n_places = None if host is None else host.n_places
        if n_places is None:
            n_places = self.on_hosts.get(host_device_of(node), self.max_on_host)
        return max(1, n_places)

    @property
    def n_cores(self) -> int:
        """Number of trials that the cores of all machines keep busy."""
        return sum(self.on_hosts.values()) if self.on_hosts else self.max_on_host

    def at_once(self, devices: Collection[DeviceId]) -> int:
        """Return the most trials over these devices; at least 1."""
        on_gpus = sum(self.max_trials_on(device) for device in devices if not device.on_host)
        on_hosts = sum(self.max_trials_on(device) for device in devices if device.on_host)
        most = on_hosts + on_gpus // self.gpus_per_trial
        cap = self.max_concurrent_trials
        return max(1, most if cap is None else min(most, cap))
