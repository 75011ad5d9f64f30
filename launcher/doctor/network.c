/* network: checks the NICs. */
#include "launcher/doctor/doctor.h"

#include "base/human.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Reads the first line of a file in a folder. */
static void read_line(const char *folder, const char *name, char *out, size_t size)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	doctor_first_line(path, out, size);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* Makes "mlx5_0 port 1" from /sys/class/infiniband/mlx5_0/ports/1. */
static void format_port_name(const char *path, char out[80])
{
	const char *device = path + strlen("/sys/class/infiniband/");
	snprintf(out, 80, "%.*s port %s", (int)strcspn(device, "/"), device, base_name(path));
}

/* A port in state 4 ("4: ACTIVE") is active. Returns the number of active ports. */
static int count_active_ports(struct findings *f, int *all)
{
	glob_t g;
	int up = 0;
	*all = 0;
	if (glob("/sys/class/infiniband/*/ports/*", 0, NULL, &g))
		return 0;
	*all = (int)g.gl_pathc;
	for (size_t i = 0; i < g.gl_pathc; i++) {
		char state[64], name[80];
		read_line(g.gl_pathv[i], "state", state, sizeof state);
		format_port_name(g.gl_pathv[i], name);
		up += state[0] == '4';
		if (state[0] != '4')
			doctor_found_bad(f, FINDING_WARN, name,
					 "check the cable, the switch port and the subnet manager "
					 "(ibstat), or exclude the port with NCCL_IB_HCA",
					 "%s", *state ? state : "its state cannot be read");
	}
	globfree(&g);
	return up;
}

/* Counts the network interfaces with a device behind them, which excludes loopback, bridges and
 * tunnels. Returns the number of those that are not down. */
static int count_ethernet(int *all)
{
	glob_t g;
	int up = 0;
	*all = 0;
	if (glob("/sys/class/net/*/device", 0, NULL, &g))
		return 0;
	for (size_t i = 0; i < g.gl_pathc; i++) {
		char folder[256], state[32];
		snprintf(folder, sizeof folder, "%.*s",
			 (int)(strlen(g.gl_pathv[i]) - strlen("/device")), g.gl_pathv[i]);
		read_line(folder, "operstate", state, sizeof state);
		++*all;
		up += strcmp(state, "down") != 0;
	}
	globfree(&g);
	return up;
}

static void check_interface(const char *name, struct findings *f)
{
	char folder[160], state[32];
	snprintf(folder, sizeof folder, "/sys/class/net/%.100s", name);
	read_line(folder, "operstate", state, sizeof state);
	if (access(folder, F_OK))
		doctor_found_bad(
			f, FINDING_FAIL, name,
			"set network.interface to an interface that ip link lists, or leave it "
			"empty",
			"network.interface names it, but this node does not have it");
	else if (!strcmp(state, "down"))
		doctor_found_bad(f, FINDING_FAIL, name,
				 "set it up (ip link), or name another one in network.interface",
				 "network.interface names it, but it is down");
	else
		doctor_found_ok(f, name, "%s", *state ? state : "it exists");
}

void doctor_check_adapters(const struct needs *n, struct findings *f)
{
	int ports, cards, active = count_active_ports(f, &ports), up = count_ethernet(&cards);
	if (*n->interface)
		check_interface(n->interface, f);
	if (ports && !active)
		doctor_found_bad(f, FINDING_WARN, "adapters",
				 "start the subnet manager (opensm), or check the switch",
				 "none of %d InfiniBand ports is active", ports);
	else if (ports)
		doctor_found_ok(f, "adapters",
				"%d of %d InfiniBand port%s active, %d of %d Ethernet", active,
				ports, human_s(ports), up, cards);
	else if (cards && !up && n->slurm)
		doctor_found_bad(f, FINDING_WARN, "adapters", "check the cables and the switch",
				 "none of %d is up", cards);
	else
		doctor_found_ok(f, "adapters", "%d of %d Ethernet up, no InfiniBand", up, cards);
}
