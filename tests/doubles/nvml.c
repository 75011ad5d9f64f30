/*
 * A double of libnvidia-ml.so.1 that simulates machines: working ones, failing ones, and ones that
 * report invalid values.
 *
 * NVML_DOUBLE (or NVML_DOUBLE_<node>, under Slurm) is MACHINE[,WORD…]. Words:
 *     lost=I       GPU I exists and does not answer
 *     falls=I      GPU I exists and does not answer, but its name and address are reported
 *     weak=I-J     one NVLink between them is down at both ends
 *     one-end=I-J  one NVLink between them is down at one end
 *     clique=N     the clique of a machine with a fabric
 *     cut          peer access is refused everywhere
 *     init, count  that call fails
 *     stuck        the library is started and never returns
 *     many         4294967295 GPUs
 *     none         no GPU
 *     endless      names without a NUL
 *     rude         names with escape sequences
 *     wild         invalid addresses, link states and types
 * These words describe the momentary state of a GPU:
 *     mute         none of the calls below is supported
 *     hang, crash  the call for the driver's version never returns; it ends the process by SIGSEGV
 *     uncorrected=I, remap-pending=I, remap-failed=I, retired=I, retire-pending=I, ecc-off=I,
 *     ecc-next=I brake=I, hot=I, slowdown=I, capped=I, narrow=I, recover=I, link-down=I,
 *     link-off=I, no-links, prohibited=I, no-persistence
 *     busy=I       another program holds 20 GiB; crowd=I: a hundred programs
 *     full=I       1 GiB is free
 *     crawl=I      its clock is 345 MHz, otherwise 1980
 *     xid=N        the driver reports XID N once
 *     mig=I        two instances; mig-empty=I: none
 *     mig-next=I   MIG after a reset
 *     old          a driver of CUDA 11.4
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, LOST = 15, UNKNOWN = 999 };

struct pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem;
	char text[32];
};

struct fabric {
	unsigned version;
	unsigned char cluster[16];
	int status;
	unsigned clique;
	unsigned char state;
	unsigned health;
};

struct memory {
	unsigned long long total, free, used;
};

struct memory_v2 {
	unsigned version;
	unsigned long long total, reserved, free, used;
};

struct process {
	unsigned pid;
	unsigned long long bytes;
	unsigned instance, compute_instance;
};

/* clang-format off */
static const struct machine {
	const char *name, *gpu;
	unsigned n, id;         /* GPUs; PCI device and vendor */
	int major, minor;
	double gib;
	const char *lanes;      /* n × n digits, or NULL */
	int ports;              /* into switches */
	int fabric;
} machines[] = {
	{ "dgx-1", "Tesla V100-SXM2-32GB", 8, 0x1db510de, 7, 0, 32,
	  "01122000" "10210200" "12020010" "21200001" "20000112" "02001021" "00101202" "00012120", 0, 0 },
	{ "dgx-2", "Tesla V100-SXM3-32GB", 16, 0x1db810de, 7, 0, 32, NULL, 6, 0 },
	{ "dgx-h100", "NVIDIA H100 80GB HBM3", 8, 0x233010de, 9, 0, 79.6, NULL, 18, 0 },
	{ "gb200", "NVIDIA GB200", 4, 0x294110de, 10, 0, 184, NULL, 18, 1 },
	{ "pair", "NVIDIA A100 80GB PCIe", 4, 0x20b510de, 8, 0, 80, "0200" "2000" "0002" "0020", 0, 0 },
	{ "strange", "NVIDIA Quantum 9000", 2, 0xffff10de, 42, 0, 1024, NULL, 0, 0 },
};
/* clang-format on */
#define GIB (1ull << 30)
enum { MACHINES = sizeof machines / sizeof *machines };

static const unsigned char buses[16] = { 0x34, 0x36, 0x39, 0x3b, 0x57, 0x59, 0x5c, 0x5e,
					 0xb7, 0xb9, 0xbc, 0xbe, 0xe0, 0xe2, 0xe5, 0xe7 };

struct nvml_device {
	unsigned index;
	int part; /* instance, from 1 on; 0: all of it */
};
static struct nvml_device devices[16], parts[16][2];

static const char *script(void)
{
	char name[128];
	const char *node = getenv("SLURMD_NODENAME");
	snprintf(name, sizeof name, "NVML_DOUBLE_%s", node ? node : "");
	const char *own = node ? getenv(name) : NULL, *all = getenv("NVML_DOUBLE");
	return own ? own : all ? all : "none";
}

static const struct machine *machine(void)
{
	const char *text = script();
	for (int i = 0; i < MACHINES; i++) {
		size_t len = strlen(machines[i].name);
		if (!strncmp(text, machines[i].name, len) && (text[len] == ',' || !text[len]))
			return &machines[i];
	}
	return &machines[2];
}

/* The text after a word of the script, or "" for a word without a value. NULL if the word is
 * absent. */
static const char *word(const char *name)
{
	const char *at = script();
	size_t len = strlen(name);
	while (*at) {
		if (!strncmp(at, name, len) && (!at[len] || at[len] == ',' || at[len] == '='))
			return at + len + (at[len] == '=');
		at += strcspn(at, ",");
		at += *at == ',';
	}
	return NULL;
}

/* Whether the script has the word for that GPU. */
static int about(const char *name, const struct nvml_device *d)
{
	const char *at = word(name);
	return at && !d->part && (unsigned)atoi(at) == d->index;
}

static int is_pair(const char *name, unsigned i, unsigned j)
{
	unsigned a, b;
	const char *at = word(name);
	return at && sscanf(at, "%u-%u", &a, &b) == 2 && ((a == i && b == j) || (a == j && b == i));
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **out);
int nvmlDeviceGetName(struct nvml_device *d, char *text, unsigned size);
int nvmlDeviceGetUUID(struct nvml_device *d, char *text, unsigned size);
int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct memory *out);
int nvmlDeviceGetPciInfo_v3(struct nvml_device *d, struct pci *out);
int nvmlDeviceGetCudaComputeCapability(struct nvml_device *d, int *major, int *minor);
int nvmlDeviceGetNvLinkState(struct nvml_device *d, unsigned link, unsigned *active);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_device *d, unsigned link, struct pci *out);
int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *d, unsigned link, unsigned *type);
int nvmlDeviceGetP2PStatus(struct nvml_device *a, struct nvml_device *b, unsigned what,
			   unsigned *status);
int nvmlDeviceGetGpuFabricInfoV(struct nvml_device *d, struct fabric *out);

#define SAYS(name, ...) int name(__attribute__((unused)) struct nvml_device *d, __VA_ARGS__)
SAYS(nvmlDeviceGetMemoryInfo_v2, struct memory_v2 *out);
SAYS(nvmlDeviceGetCurrPcieLinkGeneration, unsigned *n);
SAYS(nvmlDeviceGetCurrPcieLinkWidth, unsigned *n);
SAYS(nvmlDeviceGetMaxPcieLinkGeneration, unsigned *n);
SAYS(nvmlDeviceGetMaxPcieLinkWidth, unsigned *n);
SAYS(nvmlDeviceGetNvLinkVersion, unsigned link, unsigned *version);
SAYS(nvmlDeviceGetNvLinkErrorCounter, unsigned link, unsigned which, unsigned long long *n);
SAYS(nvmlDeviceGetEccMode, unsigned *now, unsigned *next);
SAYS(nvmlDeviceGetTotalEccErrors, unsigned error, unsigned span, unsigned long long *n);
SAYS(nvmlDeviceGetRetiredPages, unsigned cause, unsigned *n, unsigned long long *addresses);
SAYS(nvmlDeviceGetRetiredPagesPendingStatus, unsigned *pending);
SAYS(nvmlDeviceGetRemappedRows, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
     unsigned *failed);
SAYS(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long *reasons);
SAYS(nvmlDeviceGetTemperature, unsigned sensor, unsigned *celsius);
SAYS(nvmlDeviceGetClockInfo, unsigned which, unsigned *mhz);
struct events;
struct event {
	struct nvml_device *device;
	unsigned long long type, data;
	unsigned instance, compute_instance;
};
int nvmlEventSetCreate(struct events **out);
SAYS(nvmlDeviceRegisterEvents, unsigned long long types, struct events *set);
int nvmlEventSetWait_v2(struct events *set, struct event *out, unsigned ms);
int nvmlEventSetFree(struct events *set);
SAYS(nvmlDeviceGetTemperatureThreshold, unsigned which, unsigned *celsius);
SAYS(nvmlDeviceGetPowerUsage, unsigned *milliwatts);
SAYS(nvmlDeviceGetEnforcedPowerLimit, unsigned *milliwatts);
SAYS(nvmlDeviceGetPowerManagementDefaultLimit, unsigned *milliwatts);
SAYS(nvmlDeviceGetPersistenceMode, unsigned *mode);
SAYS(nvmlDeviceGetComputeMode, unsigned *mode);
SAYS(nvmlDeviceGetMigMode, unsigned *now, unsigned *next);
SAYS(nvmlDeviceGetMaxMigDeviceCount, unsigned *n);
SAYS(nvmlDeviceGetMigDeviceHandleByIndex, unsigned index, struct nvml_device **out);
SAYS(nvmlDeviceGetComputeRunningProcesses_v3, unsigned *n, struct process *out);
int nvmlSystemGetDriverVersion(char *text, unsigned size);
int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size);

int nvmlInit_v2(void)
{
	if (word("stuck"))
		pause();
	return word("init") ? UNKNOWN : SUCCESS;
}

int nvmlShutdown(void)
{
	return SUCCESS;
}

const char *nvmlErrorString(int code)
{
	return code == LOST ? "GPU is lost" : code == UNKNOWN ? NULL : "Something";
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
	if (word("count"))
		return INVALID;
	*n = word("many") ? 0xffffffffu : word("none") ? 0 : machine()->n;
	return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **out)
{
	const char *lost = word("lost");
	if (index >= machine()->n)
		return INVALID;
	if (lost && (unsigned)atoi(lost) == index)
		return LOST;
	devices[index].index = index;
	*out = &devices[index];
	return SUCCESS;
}

int nvmlDeviceGetName(struct nvml_device *d, char *text, unsigned size)
{
	(void)d;
	if (word("endless"))
		memset(text, 'A', size);
	else if (word("rude"))
		snprintf(text, size, "GPU\033[2J\xff");
	else
		snprintf(text, size, "%s", machine()->gpu);
	return SUCCESS;
}

int nvmlDeviceGetUUID(struct nvml_device *d, char *text, unsigned size)
{
	if (d->part)
		snprintf(text, size, "MIG-%c%d000000-0000", 'a' + (int)d->index, d->part);
	else
		snprintf(text, size, "GPU-%c0000000-0000", 'a' + (int)d->index);
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct memory *out)
{
	if (about("falls", d))
		return LOST;
	out->total = (unsigned long long)(machine()->gib * 1024 * 1024 * 1024) / (d->part ? 4 : 1);
	out->free = about("full", d) ? GIB : out->total - (about("busy", d) ? 21 : 1) * GIB;
	out->used = out->total - out->free;
	return SUCCESS;
}

static int pci_of(unsigned index, struct pci *out)
{
	*out = (struct pci){ .bus = buses[index], .id = machine()->id };
	if (word("wild")) {
		memset(out, 0xff, sizeof *out);
		return SUCCESS;
	}
	snprintf(out->text, sizeof out->text, "00000000:%02X:00.0", buses[index]);
	return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(struct nvml_device *d, struct pci *out)
{
	return pci_of(d->index, out);
}

int nvmlDeviceGetCudaComputeCapability(struct nvml_device *d, int *major, int *minor)
{
	(void)d;
	*major = word("wild") ? -7 : machine()->major;
	*minor = machine()->minor;
	return SUCCESS;
}

/* The peer of a direct link. Links are in the order of the peers. -1: no such link. */
static int peer(unsigned i, unsigned link)
{
	const struct machine *m = machine();
	for (unsigned j = 0; m->lanes && j < m->n; j++) {
		unsigned lanes = (unsigned)(m->lanes[i * m->n + j] - '0');
		if (link < lanes)
			return (int)j;
		link -= lanes;
	}
	return -1;
}

/* Whether this is the first of several links between two GPUs. */
static int is_first(unsigned i, unsigned link)
{
	return !link || peer(i, link - 1) != peer(i, link);
}

int nvmlDeviceGetNvLinkState(struct nvml_device *d, unsigned link, unsigned *active)
{
	const struct machine *m = machine();
	int to = peer(d->index, link);
	if (word("wild")) {
		*active = link * 2654435761u;
		return SUCCESS;
	}
	if (to < 0 && link >= (unsigned)m->ports - (unsigned)about("link-off", d))
		return INVALID;
	*active = !word("no-links") && !(about("link-down", d) && link == 2);
	if (*active && to >= 0 && is_first(d->index, link))
		*active =
			!(is_pair("weak", d->index, (unsigned)to) ||
			  (is_pair("one-end", d->index, (unsigned)to) && d->index < (unsigned)to));
	return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_device *d, unsigned link, struct pci *out)
{
	int to = peer(d->index, link);
	if (to >= 0)
		return pci_of((unsigned)to, out);
	*out = (struct pci){ .bus = 0xc0 + link % 6, .id = 0x1ac210de };
	return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *d, unsigned link, unsigned *type)
{
	if (!strcmp(machine()->name, "dgx-2"))
		return NOT_SUPPORTED; /* like drivers of that time */
	*type = word("wild") ? 0xdeadbeef : peer(d->index, link) >= 0 ? 0 : 2;
	return SUCCESS;
}

int nvmlDeviceGetP2PStatus(struct nvml_device *a, struct nvml_device *b, unsigned what,
			   unsigned *status)
{
	(void)a, (void)b, (void)what;
	*status = word("wild") ? 77 : word("cut") ? 2 : 0;
	return SUCCESS;
}

int nvmlDeviceGetGpuFabricInfoV(struct nvml_device *d, struct fabric *out)
{
	const char *clique = word("clique");
	(void)d;
	if (out->version != (sizeof *out | 2u << 24))
		return INVALID;
	if (!machine()->fabric)
		return NOT_SUPPORTED;
	memset(out->cluster, 0xab, sizeof out->cluster);
	out->status = SUCCESS;
	out->clique = clique ? (unsigned)atoi(clique) : 1;
	out->state = 3;
	return SUCCESS;
}

/* --- The momentary state --- */

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
	if (word("hang"))
		pause();
	if (word("crash"))
		raise(SIGSEGV);
	snprintf(text, size, "%s", word("old") ? "470.57.02" : "580.65.06");
	return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = word("old") ? 11040 : 13000;
	return SUCCESS;
}

int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size)
{
	snprintf(text, size, "/usr/bin/somebody%u", pid % 10);
	return SUCCESS;
}

static int told(void)
{
	return word("mute") ? NOT_SUPPORTED : SUCCESS;
}

static int tell(unsigned *out, unsigned n)
{
	*out = n;
	return told();
}

SAYS(nvmlDeviceGetMemoryInfo_v2, struct memory_v2 *out)
{
	struct memory m;
	if (out->version != (sizeof *out | 2u << 24))
		return INVALID;
	if (nvmlDeviceGetMemoryInfo(d, &m))
		return LOST;
	out->total = m.total;
	out->reserved = GIB / 2;
	out->free = m.free;
	out->used = m.used - out->reserved;
	return told();
}

SAYS(nvmlDeviceGetCurrPcieLinkGeneration, unsigned *n)
{
	(void)d;
	return tell(n, 1); /* the GPU is idle */
}

SAYS(nvmlDeviceGetCurrPcieLinkWidth, unsigned *n)
{
	return tell(n, about("narrow", d) ? 8 : 16);
}

SAYS(nvmlDeviceGetMaxPcieLinkGeneration, unsigned *n)
{
	(void)d;
	return tell(n, machine()->major >= 9 ? 5 : machine()->major == 8 ? 4 : 3);
}

SAYS(nvmlDeviceGetMaxPcieLinkWidth, unsigned *n)
{
	(void)d;
	return tell(n, 16);
}

SAYS(nvmlDeviceGetNvLinkVersion, unsigned link, unsigned *version)
{
	static const unsigned by_major[] = { [7] = 2, [8] = 4, [9] = 6, [10] = 7 };
	int major = machine()->major;
	(void)d, (void)link;
	return tell(version, major >= 7 && major <= 10 ? by_major[major] : 0);
}

SAYS(nvmlDeviceGetNvLinkErrorCounter, unsigned link, unsigned which, unsigned long long *n)
{
	*n = which == 1 && link == 3 && about("recover", d) ? 4 : 0;
	return told();
}

SAYS(nvmlDeviceGetEccMode, unsigned *now, unsigned *next)
{
	*now = !about("ecc-off", d);
	*next = *now && !about("ecc-next", d);
	return told();
}

SAYS(nvmlDeviceGetTotalEccErrors, unsigned error, unsigned span, unsigned long long *n)
{
	*n = error == 1 ? (about("uncorrected", d) ? 3 + span : 0) : 10 * span;
	return told();
}

SAYS(nvmlDeviceGetRetiredPages, unsigned cause, unsigned *n, unsigned long long *addresses)
{
	(void)addresses;
	*n = about("retired", d) ? 31 + cause : 0;
	return machine()->major > 7 ? NOT_SUPPORTED : *n ? 7 : SUCCESS;
}

SAYS(nvmlDeviceGetRetiredPagesPendingStatus, unsigned *pending)
{
	*pending = (unsigned)about("retire-pending", d);
	return machine()->major > 7 ? NOT_SUPPORTED : told();
}

SAYS(nvmlDeviceGetRemappedRows, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
     unsigned *failed)
{
	*corrected = 0;
	*uncorrected = (unsigned)about("remap-failed", d);
	*pending = (unsigned)about("remap-pending", d);
	*failed = (unsigned)about("remap-failed", d);
	return machine()->major < 8 ? NOT_SUPPORTED : told();
}

SAYS(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long *reasons)
{
	*reasons = about("brake", d)      ? 0x88
		   : about("hot", d)      ? 0x48
		   : about("slowdown", d) ? 0x8
					  : 0x1;
	return told();
}

SAYS(nvmlDeviceGetClockInfo, unsigned which, unsigned *mhz)
{
	return which == 1 ? tell(mhz, about("crawl", d) ? 345 : 1980) : INVALID;
}

/* The first word of the script's XID that was not reported yet. */
static char reported[64];

int nvmlEventSetCreate(struct events **out)
{
	*out = (struct events *)reported;
	return told();
}

SAYS(nvmlDeviceRegisterEvents, unsigned long long types, struct events *set)
{
	(void)d, (void)set;
	return types == 8 ? told() : INVALID;
}

int nvmlEventSetWait_v2(struct events *set, struct event *out, unsigned ms)
{
	const char *xid = word("xid");
	(void)set;
	if (!xid || ms || !strncmp(reported, xid, strcspn(xid, ",")))
		return 10; /* a time-out */
	snprintf(reported, sizeof reported, "%s", xid);
	*out = (struct event){ .type = 8, .data = (unsigned)atoi(xid) };
	return SUCCESS;
}

int nvmlEventSetFree(struct events *set)
{
	(void)set;
	return SUCCESS;
}

SAYS(nvmlDeviceGetTemperature, unsigned sensor, unsigned *celsius)
{
	(void)sensor;
	return tell(celsius, about("hot", d) ? 89 : 34);
}

SAYS(nvmlDeviceGetTemperatureThreshold, unsigned which, unsigned *celsius)
{
	return tell(celsius, which == 1 ? 87 : 92);
}

SAYS(nvmlDeviceGetPowerUsage, unsigned *milliwatts)
{
	(void)d;
	return tell(milliwatts, 71234);
}

SAYS(nvmlDeviceGetEnforcedPowerLimit, unsigned *milliwatts)
{
	return tell(milliwatts, about("capped", d) ? 400000 : 700000);
}

SAYS(nvmlDeviceGetPowerManagementDefaultLimit, unsigned *milliwatts)
{
	(void)d;
	return tell(milliwatts, 700000);
}

SAYS(nvmlDeviceGetPersistenceMode, unsigned *mode)
{
	(void)d;
	return tell(mode, !word("no-persistence"));
}

SAYS(nvmlDeviceGetComputeMode, unsigned *mode)
{
	return tell(mode, about("prohibited", d) ? 2 : 0);
}

SAYS(nvmlDeviceGetMigMode, unsigned *now, unsigned *next)
{
	*now = about("mig", d) || about("mig-empty", d);
	*next = *now || about("mig-next", d);
	return machine()->major < 8 ? NOT_SUPPORTED : told();
}

SAYS(nvmlDeviceGetMaxMigDeviceCount, unsigned *n)
{
	return tell(n, about("mig", d) || about("mig-empty", d) ? 7 : 0);
}

SAYS(nvmlDeviceGetMigDeviceHandleByIndex, unsigned index, struct nvml_device **out)
{
	/* Indices between instances are unused. */
	if (!about("mig", d) || index % 2 || index > 2)
		return NOT_FOUND;
	*out = &parts[d->index][index / 2];
	**out = (struct nvml_device){ .index = d->index, .part = 1 + (int)index / 2 };
	return told();
}

SAYS(nvmlDeviceGetComputeRunningProcesses_v3, unsigned *n, struct process *out)
{
	unsigned room = *n;
	*n = about("busy", d) ? 1 : about("crowd", d) ? 100 : 0;
	for (unsigned i = 0; i < *n && *n <= room; i++)
		out[i] = (struct process){ .pid = 4711 + i,
					   .bytes = 20 * GIB / *n,
					   .instance = 0xffffffffu,
					   .compute_instance = 0xffffffffu };
	return *n > room ? 7 : told();
}
