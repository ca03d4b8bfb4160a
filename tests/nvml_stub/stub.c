/* A stand-in for NVIDIA's libnvidia-ml.so.1: just the functions that automl calls, by the binding.
 *
 * What it answers is read at every call from a file that AUTOML_NVML_STUB names and nvmlInit_v2
 * maps, so that a test in any process can change memory, load, tenants, return codes and delays
 * while a sweep runs. Without that file there is no driver. The layout is repeated in stub.py.
 * A function is left out of the library by -DWITHOUT_<function>.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };
enum { INIT, SHUTDOWN, COUNT, BY_INDEX, BY_UUID, NAME, UUID, MEMORY, UTILISATION, COMPUTE, GRAPHICS,
       MIG_MODE, MIG_COUNT, MIG_BY_INDEX, COMPUTE_MODE, ECC_ERRORS, POWER, TEMPERATURE,
       N_FUNCTIONS };
enum { MAX_DEVICES = 16, MAX_PROCESSES = 16, NO_PARENT = -1 };

struct tenant { uint32_t pid, graphics; uint64_t used_bytes; };
struct device {
    char uuid[80], name[64];
    uint64_t total_bytes, free_bytes, used_bytes;
    uint32_t utilisation_percent, mig_enabled;
    int32_t code;                      /* what every function answers for this device */
    int32_t parent;                    /* of a MIG slice: its GPU; NO_PARENT: a GPU */
    uint32_t n_tenants, compute_mode;
    uint64_t n_ecc_errors;             /* uncorrected, since the driver was loaded */
    uint32_t milliwatts, celsius;      /* 0: it does not tell */
    struct tenant tenants[MAX_PROCESSES];
};
struct function { int32_t code, hangs; uint32_t delay_ms, n_calls; };
struct state {
    uint32_t n_devices, padding;       /* slices included; order is NVML's */
    struct function functions[N_FUNCTIONS];
    struct device devices[MAX_DEVICES];
};

static struct state *state;
static int n_inits;

static void pause_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* What each function does first: count the call, wait as it was told, and answer its code. */
static int enter(int id, const struct device *device) {
    if (!state || (!n_inits && id != INIT)) return UNINITIALIZED;
    struct function *f = &state->functions[id];
    __atomic_add_fetch(&f->n_calls, 1, __ATOMIC_SEQ_CST);
    pause_ms(f->delay_ms);
    while (__atomic_load_n(&f->hangs, __ATOMIC_SEQ_CST)) pause_ms(1);
    if (f->code) return f->code;
    return device ? device->code : SUCCESS;
}
#define ENTER(id, device) do { int code = enter(id, device); if (code) return code; } while (0)

static int copy(char *to, unsigned size, const char *from) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

int nvmlInit_v2(void) {
    const char *path = getenv("AUTOML_NVML_STUB");
    if (!n_inits) {
        int fd = path ? open(path, O_RDWR) : -1;
        if (fd < 0) return DRIVER_NOT_LOADED;
        void *p = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (p == MAP_FAILED) return DRIVER_NOT_LOADED;
        state = p;                     /* an older one stays mapped: a call may hang in it */
    }
    ENTER(INIT, NULL);
    n_inits++;
    return SUCCESS;
}

int nvmlShutdown(void) {
    ENTER(SHUTDOWN, NULL);
    n_inits--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    return code == 999 ? "Unknown Error" : "An error that the stub was told to answer";
}

static struct device *nth(int parent, unsigned n) {
    for (unsigned i = 0; i < state->n_devices; i++)
        if (state->devices[i].parent == parent && n-- == 0) return &state->devices[i];
    return NULL;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER(COUNT, NULL);
    for (*count = 0; nth(NO_PARENT, *count); ++*count) {}
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **out) {
    ENTER(BY_INDEX, nth(NO_PARENT, index));
    return (*out = nth(NO_PARENT, index)) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **out) {
    ENTER(BY_UUID, NULL);
    for (unsigned i = 0; i < state->n_devices; i++)
        if (!strcasecmp(state->devices[i].uuid, uuid)) {
            *out = &state->devices[i];
            return (*out)->code;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetName(struct device *d, char *name, unsigned size) {
    ENTER(NAME, d);
    return copy(name, size, d->name);
}

int nvmlDeviceGetUUID(struct device *d, char *uuid, unsigned size) {
    ENTER(UUID, d);
    return copy(uuid, size, d->uuid);
}

int nvmlDeviceGetMemoryInfo(struct device *d, uint64_t out[3]) {
    ENTER(MEMORY, d);
    out[0] = d->total_bytes, out[1] = d->free_bytes, out[2] = d->used_bytes;
    return SUCCESS;
}

#ifndef WITHOUT_nvmlDeviceGetUtilizationRates
int nvmlDeviceGetUtilizationRates(struct device *d, uint32_t out[2]) {
    ENTER(UTILISATION, d);
    if (d->parent != NO_PARENT) return NOT_SUPPORTED;
    out[0] = d->utilisation_percent, out[1] = 0;
    return SUCCESS;
}
#endif

struct process_v1 { unsigned pid; unsigned long long used_bytes; };

/* Answers as many as there is room for, and counts all. */
static inline int list(struct device *d, unsigned graphics, unsigned *count,
                       struct process_v1 *out) {
    unsigned room = *count;
    *count = 0;
    for (unsigned i = 0; i < d->n_tenants; i++) {
        if (d->tenants[i].graphics != graphics) continue;
        if (*count < room)
            out[*count] = (struct process_v1){d->tenants[i].pid, d->tenants[i].used_bytes};
        ++*count;
    }
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifndef WITHOUT_nvmlDeviceGetComputeRunningProcesses
int nvmlDeviceGetComputeRunningProcesses(struct device *d, unsigned *count, struct process_v1 *out) {
    ENTER(COMPUTE, d);
    return list(d, 0, count, out);
}
#endif

#ifndef WITHOUT_nvmlDeviceGetGraphicsRunningProcesses
int nvmlDeviceGetGraphicsRunningProcesses(struct device *d, unsigned *count, struct process_v1 *out) {
    ENTER(GRAPHICS, d);
    return list(d, 1, count, out);
}
#endif

#ifndef WITHOUT_nvmlDeviceGetMigMode
int nvmlDeviceGetMigMode(struct device *d, unsigned *current, unsigned *pending) {
    ENTER(MIG_MODE, d);
    *current = *pending = d->mig_enabled;
    return SUCCESS;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetComputeMode
int nvmlDeviceGetComputeMode(struct device *d, uint32_t *mode) {
    ENTER(COMPUTE_MODE, d);
    *mode = d->compute_mode;
    return SUCCESS;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetTotalEccErrors
int nvmlDeviceGetTotalEccErrors(struct device *d, int corrected, int aggregate, uint64_t *count) {
    ENTER(ECC_ERRORS, d);
    if (corrected != 1 || aggregate != 0) return INVALID_ARGUMENT;
    *count = d->n_ecc_errors;
    return SUCCESS;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetPowerUsage
int nvmlDeviceGetPowerUsage(struct device *d, uint32_t *out) {
    ENTER(POWER, d);
    *out = d->milliwatts;
    return *out ? SUCCESS : NOT_SUPPORTED;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetTemperature
int nvmlDeviceGetTemperature(struct device *d, int sensor, uint32_t *out) {
    ENTER(TEMPERATURE, d);
    if (sensor != 0) return INVALID_ARGUMENT;
    *out = d->celsius;
    return *out ? SUCCESS : NOT_SUPPORTED;
}
#endif

/* Seven places per GPU, as on an A100; slices fill every second one, so that places are empty. */
int nvmlDeviceGetMaxMigDeviceCount(struct device *d, unsigned *count) {
    ENTER(MIG_COUNT, d);
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *d, unsigned index, struct device **out) {
    ENTER(MIG_BY_INDEX, d);
    *out = index % 2 ? nth((int)(d - state->devices), index / 2) : NULL;
    return *out ? SUCCESS : NOT_FOUND;
}
