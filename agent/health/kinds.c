#include "agent/health/kinds.h"

#include "agent/health/text.h"
#include "base/human.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Cores ------------------------------------------------------------------------------------ */

static bool read_in_group(const struct health *h, const struct health_group *g, const char *file,
			  char *out, size_t size)
{
	char path[HEALTH_GROUP + 64];
	snprintf(path, sizeof path, "%s/%s", g->dir, file);
	return health_text_read(h->root, path, out, size);
}

/* The kernel adds up the time of all CPUs on which the group was throttled, so that with several
 * threads this is an upper bound. */
static bool read_throttled(struct health *h, double *value, double *second)
{
	char text[2048];
	double n;
	(void)second;
	if (!health_group_cpu(h->root, h->o.pid, &h->cpu_group) ||
	    !read_in_group(h, &h->cpu_group, "cpu.stat", text, sizeof text))
		return false;
	if (health_text_value(text, "throttled_usec", &n))
		*value = 1e-6 * n;
	else if (health_text_value(text, "throttled_time", &n))
		*value = 1e-9 * n;
	else
		return false;
	return true;
}

/* The periods of the limit in which the group was throttled, over all in which it ran. */
static bool read_throttled_periods(struct health *h, double *value, double *second)
{
	char text[2048];
	return h->cpu_group.limit > 0 &&
	       read_in_group(h, &h->cpu_group, "cpu.stat", text, sizeof text) &&
	       health_text_value(text, "nr_throttled", value) &&
	       health_text_value(text, "nr_periods", second);
}

static void print_cpu_limit(const struct health *h, char *out, size_t size)
{
	snprintf(out, size, "its cgroup %.100s limits it to %.2g core%s", h->cpu_group.name,
		 h->cpu_group.limit, h->cpu_group.limit == 1 ? "" : "s");
}

static bool read_delay(struct health *h, double *value, double *second)
{
	char text[128];
	(void)second;
	return health_read_thread(h, "schedstat", text, sizeof text) &&
	       health_text_delay(text, value);
}

/* The delay of a thread that gives way to others; unknown if it does not. */
static bool read_niced(struct health *h, double *value, double *second)
{
	char text[1024];
	struct health_process p;
	if (!health_read_thread(h, "stat", text, sizeof text) || !health_text_process(text, &p))
		return false;
	h->nice = p.nice;
	return p.nice > 0 && read_delay(h, value, second);
}

static void print_nice(const struct health *h, char *out, size_t size)
{
	snprintf(out, size, "%d", h->nice);
}

static void print_others(const struct health *h, char *out, size_t size)
{
	snprintf(out, size, "%s%s", *h->others ? "; " : "", h->others);
}

static bool read_switches(struct health *h, double *value, double *second)
{
	char text[4096];
	(void)second;
	return health_read_thread(h, "status", text, sizeof text) &&
	       health_text_value(text, "nonvoluntary_ctxt_switches", value);
}

static bool read_pressure(struct health *h, const char *what, double *value)
{
	struct health_group own;
	char path[64], text[512];
	if (health_group_own(h->root, h->o.pid, &own)) {
		snprintf(path, sizeof path, "%s.pressure", what);
		if (read_in_group(h, &own, path, text, sizeof text))
			return health_text_pressure(text, value);
	}
	snprintf(path, sizeof path, "proc/pressure/%s", what);
	return health_text_read(h->root, path, text, sizeof text) &&
	       health_text_pressure(text, value);
}

/* On a host with many CPUs /proc/cpuinfo is long, so it is read once per window. */
static bool read_clock_of_cpuinfo(struct health *h, double *value)
{
	const struct health_series *s = health_series_of(h, "clock");
	static _Thread_local char text[1 << 18];
	if (s->n) {
		*value = s->last;
		return true;
	}
	return health_text_read(h->root, "proc/cpuinfo", text, sizeof text) &&
	       health_text_clock(text, value);
}

/* The mean clock of the first CPUs on which the process may run. */
static bool read_clock(struct health *h, double *value, double *second)
{
	enum { MOST = 8, CPUS = 4096 };
	bool mask[CPUS] = { false };
	double sum = 0;
	int n = 0;
	(void)second;
	if (!health_text_cpus(h->cpus, mask, CPUS))
		return false;
	for (int i = 0; i < CPUS && n < MOST; i++) {
		char path[96], text[32];
		if (!mask[i])
			continue;
		snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
			 i);
		if (!health_text_read(h->root, path, text, sizeof text) || atof(text) <= 0)
			return read_clock_of_cpuinfo(h, value);
		sum += 1e-3 * atof(text);
		n++;
	}
	*value = n ? sum / n : 0;
	return n > 0;
}

static bool read_thermal(struct health *h, double *value, double *second)
{
	enum { MOST = 8, CPUS = 4096 };
	static const char *const files[] = { "core_throttle_count", "package_throttle_count" };
	bool mask[CPUS] = { false }, any = false;
	(void)second;
	*value = 0;
	if (!health_text_cpus(h->cpus, mask, CPUS))
		return false;
	for (int i = 0, n = 0; i < CPUS && n < MOST; i++) {
		if (!mask[i])
			continue;
		for (int f = 0; f < 2; f++) {
			char path[112], text[32];
			snprintf(path, sizeof path,
				 "sys/devices/system/cpu/cpu%d/thermal_throttle/%s", i, files[f]);
			if (!health_text_read(h->root, path, text, sizeof text))
				continue;
			*value += atof(text);
			any = true;
		}
		n++;
	}
	return any;
}

static bool read_cpu_pressure(struct health *h, double *value, double *second)
{
	(void)second;
	return read_pressure(h, "cpu", value);
}

/* --- Memory and disk -------------------------------------------------------------------------- */

/* The pressure of the whole node says nothing about this rank unless it has to wait for its own
 * pages, too. */
static bool read_memory_pressure(struct health *h, double *value, double *second)
{
	enum { FAULTS = 10 };
	(void)second;
	struct health_group own;
	if (!health_group_own(h->root, h->o.pid, &own) && health_value(h, "major-faults") < FAULTS)
		return false;
	return read_pressure(h, "memory", value);
}

static void print_memory(const struct health *h, char *out, size_t size)
{
	struct health_group g;
	char text[64], bytes[HUMAN];
	const char *file = "memory.current";
	*out = '\0';
	if (!health_group_memory(h->root, h->o.pid, &g))
		return;
	if (!g.v2)
		file = "memory.usage_in_bytes";
	if (read_in_group(h, &g, file, text, sizeof text) && atof(text) > 0.8 * g.limit)
		snprintf(out, size, "; its cgroup %.100s limits it to %s", g.name,
			 human_bytes(g.limit, bytes));
}

static bool read_faults(struct health *h, double *value, double *second)
{
	char text[1024];
	struct health_process p;
	(void)second;
	if (!health_read_own(h, "stat", text, sizeof text) || !health_text_process(text, &p))
		return false;
	*value = p.faults;
	return true;
}

static bool read_swap(struct health *h, double *value, double *second)
{
	char text[8192];
	double in, out;
	(void)second;
	if (!health_text_read(h->root, "proc/vmstat", text, sizeof text) ||
	    !health_text_value(text, "pswpin", &in) || !health_text_value(text, "pswpout", &out))
		return false;
	*value = in + out;
	return true;
}

static bool read_io_pressure(struct health *h, double *value, double *second)
{
	(void)second;
	return read_pressure(h, "io", value);
}

static bool read_disk(struct health *h, double *value, double *second)
{
	char text[12288];
	struct health_disk d;
	if (!*h->disk || !health_text_read(h->root, "proc/diskstats", text, sizeof text) ||
	    !health_text_disk(text, h->disk_major, h->disk_minor, &d))
		return false;
	snprintf(h->disk_name, sizeof h->disk_name, "%s", d.name);
	*value = 1e3 * d.seconds;
	*second = d.requests;
	return true;
}

static void print_disk(const struct health *h, char *out, size_t size)
{
	snprintf(out, size, "%s", h->disk_name);
}

/* --- GPU -------------------------------------------------------------------------------------- */

static bool read_gpu_clock(struct health *h, double *value, double *second)
{
	int mhz = h->watch ? topo_gpu_watch_clock(h->watch) : -1;
	(void)second;
	*value = mhz;
	return mhz > 0;
}

/* 1 while the driver holds the clock down for a reason that is not the job's. */
static bool read_gpu_slow(struct health *h, double *value, double *second)
{
	int bits = h->watch ? topo_gpu_watch_slow(h->watch) : -1;
	(void)second;
	if (bits < 0)
		return false;
	h->gpu.slow |= (unsigned)bits;
	*value = (bits & (GPU_SLOW_THERMAL | GPU_SLOW_POWER_BRAKE | GPU_SLOW_HARDWARE)) != 0;
	return true;
}

static void print_gpu_slow(const struct health *h, char *out, size_t size)
{
	const struct gpu_state *g = &h->gpu;
	char hot[48] = "", watts[48] = "";
	if (g->temperature > 0)
		snprintf(hot, sizeof hot, "; it has %d °C", g->temperature);
	if (g->power > 0)
		snprintf(watts, sizeof watts, " and takes %.0f W", g->power);
	snprintf(out, size, "%s%s%s",
		 g->slow & GPU_SLOW_THERMAL       ? "because it is too hot"
		 : g->slow & GPU_SLOW_POWER_BRAKE ? "because the node's power supply asks for it"
						  : "because its hardware asks for it",
		 hot, *hot ? watts : "");
}

/* Errors and links are read once per window. */
static const struct gpu_state *gpu_of(struct health *h)
{
	struct gpu_state now;
	unsigned slow = h->gpu.slow;
	if (!h->watch)
		return NULL;
	if (!h->gpu_read) {
		topo_gpu_watch_read(h->watch, &now);
		h->gpu = now;
		h->gpu.slow |= slow;
		h->gpu_read = true;
	}
	return *h->gpu.trouble ? NULL : &h->gpu;
}

#define GPU_READER(name, member) \
	static bool name(struct health *h, double *value, double *second) \
	{ \
		const struct gpu_state *g = gpu_of(h); \
		(void)second; \
		*value = g ? (double)g->member : -1; \
		return *value >= 0; \
	}
GPU_READER(read_corrected, corrected)
GPU_READER(read_uncorrected, uncorrected)
GPU_READER(read_remap_pending, remap_pending)
GPU_READER(read_remap_failed, remap_failed)
GPU_READER(read_link_replays, link_replays)
GPU_READER(read_link_recoveries, link_recoveries)
GPU_READER(read_link_crc, link_crc)
GPU_READER(read_temperature, temperature)
GPU_READER(read_power, power)

static bool read_xid(struct health *h, double *value, double *second)
{
	int xids = h->watch ? topo_gpu_watch_xids(h->watch, &h->xid) : -1;
	(void)second;
	*value = xids;
	return xids >= 0;
}

static void print_xid(const struct health *h, char *out, size_t size)
{
	snprintf(out, size, "%u", h->xid);
}

/* --- Network ---------------------------------------------------------------------------------- */

static bool read_nic_errors(struct health *h, double *value, double *second)
{
	static const char *const names[] = { "rx_errors", "tx_errors", NULL };
	(void)second;
	return health_sum_net(h->root, names, &h->nic_errors, value, h->nic);
}

static bool read_nic_drops(struct health *h, double *value, double *second)
{
	static const char *const names[] = { "rx_missed_errors", "rx_fifo_errors", "tx_dropped",
					     NULL };
	(void)second;
	return health_sum_net(h->root, names, &h->nic_drops, value, h->nic);
}

static bool read_ib_errors(struct health *h, double *value, double *second)
{
	static const char *const names[] = { "symbol_error", "port_rcv_errors",
					     "local_link_integrity_errors",
					     "excessive_buffer_overrun_errors", NULL };
	(void)second;
	return health_sum_infiniband(h->root, names, &h->ib_errors, value, h->nic);
}

static bool read_ib_down(struct health *h, double *value, double *second)
{
	static const char *const names[] = { "link_downed", "link_error_recovery", NULL };
	(void)second;
	return health_sum_infiniband(h->root, names, &h->ib_down, value, h->nic);
}

static void print_nic(const struct health *h, char *out, size_t size)
{
	snprintf(out, size, "%s", h->nic);
}

/* Segments that were sent again, over all that were sent. */
static bool read_resent(struct health *h, double *value, double *second)
{
	char text[4096];
	return health_text_read(h->root, "proc/net/snmp", text, sizeof text) &&
	       health_text_protocol(text, "Tcp", "RetransSegs", value) &&
	       health_text_protocol(text, "Tcp", "OutSegs", second);
}

/* clang-format off */

/* word, unit, type, scope, often, read, from, alarm, cost, sentence, detail */
const struct health_kind health_kinds[] = {
	{ "throttled",       "%",   HEALTH_SHARE, HEALTH_OF_RANK, true, read_throttled,       0.1,  false, 1.2, "{detail}: it was throttled for {value} of the time", print_cpu_limit },
	{ "throttled-periods", "%", HEALTH_RATIO, HEALTH_OF_RANK, true, read_throttled_periods, 0,  false, 0,   "", NULL },
	{ "niced",           "%",   HEALTH_SHARE, HEALTH_OF_RANK, false, read_niced,           0.1,  false, 1.1, "its nice value is {detail}, so other processes go first: it waited for a core for {value} of the time", print_nice },
	{ "delay",           "%",   HEALTH_SHARE, HEALTH_OF_RANK, false, read_delay,           0.1,  false, 1.0, "it waited for a core for {value} of the time{detail}", print_others },
	{ "major-faults",    "/s",  HEALTH_RATE,  HEALTH_OF_RANK, false, read_faults,          100,  false, 0.3, "it reads {value} pages of its memory from disk again (major page faults){detail}", print_memory },
	{ "memory-pressure", "%",   HEALTH_SHARE, HEALTH_OF_RANK, false, read_memory_pressure, 0.1,  false, 1.2, "its memory is short: processes waited for memory for {value} of the time{detail}", print_memory },
	{ "swap",            "/s",  HEALTH_RATE,  HEALTH_OF_NODE, false, read_swap,            100,  false, 0.3, "the node moves {value} pages to or from swap", NULL },
	{ "clock",           "MHz", HEALTH_LEVEL, HEALTH_OF_RANK, true,  read_clock,           0,    false, 0,   "", NULL },
	{ "thermal",         "",    HEALTH_RISE,  HEALTH_OF_RANK, false, read_thermal,         10,   false, 0.4, "its cores were slowed down {value} times because they were too hot", NULL },
	{ "gpu-clock",       "MHz", HEALTH_LEVEL, HEALTH_OF_GPU,  true,  read_gpu_clock,       0,    false, 0,   "", NULL },
	{ "gpu-slow",        "%",   HEALTH_LEVEL, HEALTH_OF_GPU,  true,  read_gpu_slow,        0.1,  false, 1.0, "its GPU lowered its clock for {value} of the time {detail}", print_gpu_slow },
	{ "gpu-temperature", "°C",  HEALTH_LEVEL, HEALTH_OF_GPU,  false, read_temperature,     0,    false, 0,   "", NULL },
	{ "gpu-power",       "W",   HEALTH_LEVEL, HEALTH_OF_GPU,  false, read_power,           0,    false, 0,   "", NULL },
	{ "ecc",             "",    HEALTH_RISE,  HEALTH_OF_GPU,  false, read_uncorrected,     1,    true,  0.3, "its GPU had {value} new uncorrectable memory errors (ECC)", NULL },
	{ "ecc-corrected",   "",    HEALTH_RISE,  HEALTH_OF_GPU,  false, read_corrected,       100,  false, 0.2, "its GPU corrected {value} memory errors (ECC)", NULL },
	{ "remap-pending",   "",    HEALTH_LEVEL, HEALTH_OF_GPU,  false, read_remap_pending,   1,    true,  0.1, "its GPU must be reset to remap memory rows", NULL },
	{ "remap-failed",    "",    HEALTH_LEVEL, HEALTH_OF_GPU,  false, read_remap_failed,    1,    true,  0.1, "its GPU could not remap a memory row", NULL },
	{ "xid",             "",    HEALTH_RISE,  HEALTH_OF_GPU,  false, read_xid,             1,    true,  0.3, "the driver reported XID {detail} for its GPU", print_xid },
	{ "nvlink-crc",      "",    HEALTH_RISE,  HEALTH_OF_GPU,  false, read_link_crc,        10,   true,  0.2, "the NVLinks of its GPU had {value} new CRC errors", NULL },
	{ "nvlink-replays",  "",    HEALTH_RISE,  HEALTH_OF_GPU,  false, read_link_replays,    10,   true,  0.2, "the NVLinks of its GPU had {value} new replays", NULL },
	{ "nvlink-recovery", "",    HEALTH_RISE,  HEALTH_OF_GPU,  false, read_link_recoveries, 1,    true,  0.2, "the NVLinks of its GPU recovered {value} times from an error", NULL },
	{ "nic-errors",      "",    HEALTH_RISE,  HEALTH_OF_NODE, false, read_nic_errors,      10,   true,  0.2, "network interface {detail} had {value} new errors", print_nic },
	{ "nic-drops",       "/s",  HEALTH_RATE,  HEALTH_OF_NODE, false, read_nic_drops,       10,   false, 0.2, "network interface {detail} drops {value} packets", print_nic },
	{ "ib-link",         "",    HEALTH_RISE,  HEALTH_OF_NODE, false, read_ib_down,         1,    true,  0.2, "the link of adapter {detail} failed {value} times", print_nic },
	{ "ib-errors",       "",    HEALTH_RISE,  HEALTH_OF_NODE, false, read_ib_errors,       10,   true,  0.2, "adapter {detail} had {value} new link errors", print_nic },
	{ "tcp-resent",      "%",   HEALTH_RATIO, HEALTH_OF_NODE, false, read_resent,          0.02, false, 0.2, "the node sent {value} of its TCP segments again", NULL },
	{ "disk",            "ms",  HEALTH_RATIO, HEALTH_OF_NODE, false, read_disk,            100,  false, 0.2, "a request to disk {detail}, which holds the checkpoints, takes {value}", print_disk },
	{ "io-pressure",     "%",   HEALTH_SHARE, HEALTH_OF_RANK, false, read_io_pressure,     0.3,  false, 0.4, "processes waited for disks for {value} of the time", NULL },
	{ "cpu-pressure",    "%",   HEALTH_SHARE, HEALTH_OF_RANK, false, read_cpu_pressure,    0,    false, 0,   "", NULL },
	{ "preempted",       "/s",  HEALTH_RATE,  HEALTH_OF_RANK, false, read_switches,        2000, false, 0.1, "it lost its core {value} to other tasks", NULL },
};
/* clang-format on */

const int health_n_kinds = sizeof health_kinds / sizeof *health_kinds;
