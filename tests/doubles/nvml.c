/*
 * A double of libnvidia-ml.so.1 that plays machines, sound ones, failing ones and lying ones.
 *
 * NVML_DOUBLE (or NVML_DOUBLE_<node>, under Slurm) is MACHINE[,WORD…]. Words:
 *     lost=I       GPU I is there and does not answer
 *     weak=I-J     one NVLink between them is down at both ends
 *     one-end=I-J  … at one end
 *     clique=N     the clique of a machine with a fabric
 *     cut          peer access is refused everywhere
 *     init, count  that call fails
 *     many         4294967295 GPUs
 *     none         no GPU
 *     endless      names without a NUL
 *     rude         names with escape sequences
 *     wild         addresses, link states and types that make no sense
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, LOST = 15, UNKNOWN = 999 };

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
enum { MACHINES = sizeof machines / sizeof *machines };

static const unsigned char buses[16] = { 0x34, 0x36, 0x39, 0x3b, 0x57, 0x59, 0x5c, 0x5e, 0xb7, 0xb9, 0xbc, 0xbe, 0xe0, 0xe2, 0xe5, 0xe7 };

struct nvml_device {
	unsigned index;
};
static struct nvml_device devices[16];

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

/* What stands behind a word of the script, "" for one that stands alone; NULL when it is not there. */
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
int nvmlDeviceGetP2PStatus(struct nvml_device *a, struct nvml_device *b, unsigned what, unsigned *status);
int nvmlDeviceGetGpuFabricInfoV(struct nvml_device *d, struct fabric *out);

int nvmlInit_v2(void)
{
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
	snprintf(text, size, "GPU-%c0000000-0000", 'a' + (int)(d - devices));
	return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct memory *out)
{
	(void)d;
	out->total = (unsigned long long)(machine()->gib * 1024 * 1024 * 1024);
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

/* The peer of a direct link: links in the order of the peers. -1: no such link. */
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

/* The first of several links between two. */
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
	if (to < 0 && link >= (unsigned)m->ports)
		return INVALID;
	*active = 1;
	if (to >= 0 && is_first(d->index, link))
		*active = !(is_pair("weak", d->index, (unsigned)to) || (is_pair("one-end", d->index, (unsigned)to) && d->index < (unsigned)to));
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
		return NOT_SUPPORTED; /* as drivers of its time */
	*type = word("wild") ? 0xdeadbeef : peer(d->index, link) >= 0 ? 0 : 2;
	return SUCCESS;
}

int nvmlDeviceGetP2PStatus(struct nvml_device *a, struct nvml_device *b, unsigned what, unsigned *status)
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
