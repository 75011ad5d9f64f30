/* names: checks that this host's name and those of the allocation's nodes are resolved without waiting,
 * to addresses that other nodes can use. A name that is missing in /etc/hosts, with a DNS server that
 * does not answer, delays each start of the agents by 5 to 15 s: srun, PMIx and NCCL look it up. */
#include "launcher/doctor/doctor.h"

#include "base/clock.h"
#include "base/human.h"
#include "launcher/child.h"
#include "topo/discover/scontrol.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOKUP_S   8.0 /* for all look-ups of a check together; less than the check's own limit */
#define SLOW_S     1.0
#define SCONTROL_S 7.0
enum { NAME_MAX_LEN = 256, NAMES_MAX = 256, SHOWN_MAX = 3 };

static const char slow_remedy[] =
	"add the addresses and names of all nodes to /etc/hosts on every node, or correct the DNS "
	"server in /etc/resolv.conf; each start of the agents waits for it";
static const char unresolved_remedy[] =
	"add its address and name to /etc/hosts or DNS, or set network.interface to the interface "
	"that the ranks use";

struct lookup {
	struct gaicb request;
	char name[NAME_MAX_LEN];
	int error;      /* of getaddrinfo */
	double seconds; /* until the answer; -1: there is none */
};

static void start_lookup(struct lookup *l)
{
	struct gaicb *list = &l->request;
	l->request = (struct gaicb){ .ar_name = l->name };
	l->seconds = -1;
	l->error = getaddrinfo_a(GAI_NOWAIT, &list, 1, NULL);
	if (l->error)
		l->seconds = 0;
}

/* Looks up all names at the same time. Those without an answer stay under way: the process of the
 * check ends before they do. */
static void look_up(struct lookup *all, int n)
{
	double start = clock_s();
	for (int i = 0; i < n; i++)
		start_lookup(&all[i]);
	for (int open = n; open && clock_s() - start < LOOKUP_S; poll(NULL, 0, 2)) {
		open = 0;
		for (int i = 0; i < n; i++) {
			if (all[i].seconds >= 0)
				continue;
			all[i].error = gai_error(&all[i].request);
			if (all[i].error == EAI_INPROGRESS)
				open++;
			else
				all[i].seconds = clock_s() - start;
		}
	}
}

static bool is_slow(const struct lookup *l)
{
	return l->seconds < 0 || l->seconds >= SLOW_S;
}

/* "n1: no answer within 8 s", or "n1: the answer took 5.0 s (Name or service not known)". */
static void describe_delay(const struct lookup *l, char *out, size_t size)
{
	if (l->seconds < 0)
		snprintf(out, size, "%s: no answer within %g s", l->name, LOOKUP_S);
	else
		snprintf(out, size, "%s: the answer took %.1f s%s%s%s", l->name, l->seconds,
			 l->error ? " (" : "", l->error ? gai_strerror(l->error) : "",
			 l->error ? ")" : "");
}

static bool is_loopback(const struct addrinfo *a)
{
	const void *at = a->ai_addr;
	if (a->ai_family == AF_INET)
		return (ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr) >> 24) == 127;
	return a->ai_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)at)->sin6_addr);
}

/* Whether a socket of this host can have the address. If none can be made, nothing is known. */
static bool is_ours(const struct addrinfo *a)
{
	int s = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ours = s < 0 || !bind(s, a->ai_addr, a->ai_addrlen);
	if (s >= 0)
		close(s);
	return ours;
}

static bool has_own_address(const struct addrinfo *list)
{
	for (const struct addrinfo *a = list; a; a = a->ai_next)
		if (is_ours(a))
			return true;
	return false;
}

static void format_address(const struct addrinfo *a, char out[NI_MAXHOST])
{
	if (getnameinfo(a->ai_addr, a->ai_addrlen, out, NI_MAXHOST, NULL, 0, NI_NUMERICHOST))
		strcpy(out, "?");
}

/* --- This host's name ----------------------------------------------------------------- */

static void report_address(const struct lookup *l, const struct needs *n, struct findings *f)
{
	const struct addrinfo *found = l->request.ar_result;
	char text[NI_MAXHOST];
	format_address(found, text);
	if (n->slurm && !has_own_address(found))
		doctor_found_bad(f, FINDING_WARN, "host name",
				 "correct its entry in /etc/hosts or DNS, or set network.interface",
				 "%s is %s, which is no address of this host", l->name, text);
	else
		doctor_found_ok(f, "host name", "%s is %s%s", l->name, text,
				is_loopback(found) && n->slurm
					? ", a loopback address; ranks use the interface towards "
					  "the supervisor"
					: "");
}

void doctor_check_name(const struct needs *n, struct findings *f)
{
	static struct lookup own; /* the look-up may outlive the check */
	enum finding_level level = n->slurm ? FINDING_WARN : FINDING_OK;
	char delay[NAME_MAX_LEN + 128];
	if (gethostname(own.name, sizeof own.name - 1) || !*own.name) {
		doctor_found_bad(f, FINDING_WARN, "host name", unresolved_remedy,
				 "this host has no name");
		return;
	}
	look_up(&own, 1);
	describe_delay(&own, delay, sizeof delay);
	if (is_slow(&own))
		doctor_found_bad(f, FINDING_WARN, "host name", slow_remedy, "%s", delay);
	else if (own.error)
		doctor_found_bad(f, level, "host name", level ? unresolved_remedy : "", "%s: %s%s",
				 own.name, gai_strerror(own.error),
				 level ? "" : "; ranks on one host do not need it");
	else
		report_address(&own, n, f);
}

/* --- The nodes of the allocation ------------------------------------------------------ */

static bool is_number(const char *address)
{
	struct in6_addr at;
	return inet_pton(AF_INET, address, &at) == 1 || inet_pton(AF_INET6, address, &at) == 1;
}

/* Takes the names among the nodes' addresses (NodeAddr) from scontrol's lines. *nodes: how many nodes
 * there are. */
static int read_names(const char *text, struct lookup *all, int *nodes)
{
	int n = 0;
	*nodes = 0;
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		char address[NAME_MAX_LEN], one[4096];
		snprintf(one, sizeof one, "%.*s", (int)strcspn(line, "\n"), line);
		if (!topo_scontrol_field(one, "NodeAddr", address, sizeof address))
			continue;
		++*nodes;
		if (!is_number(address) && n < NAMES_MAX)
			strcpy(all[n++].name, address);
	}
	return n;
}

/* Reports the nodes whose address is a name that is loopback here: another node cannot use it. */
static bool report_loopback(const struct lookup *l, int nodes, struct findings *f)
{
	char own[NAME_MAX_LEN] = "", text[NI_MAXHOST];
	gethostname(own, sizeof own - 1);
	size_t len = strcspn(l->name, ".");
	bool self = !strncmp(own, l->name, len) && (!own[len] || own[len] == '.');
	if (nodes < 2 || self || !is_loopback(l->request.ar_result))
		return false;
	format_address(l->request.ar_result, text);
	doctor_found_bad(f, FINDING_WARN, "node names",
			 "correct its entry in /etc/hosts or DNS, or NodeAddr in slurm.conf",
			 "%s is %s here, a loopback address, but it is another node", l->name,
			 text);
	return true;
}

static void judge_names(const struct lookup *all, int n, int nodes, struct findings *f)
{
	char delay[NAME_MAX_LEN + 128];
	int bad = 0, slow = 0;
	for (int i = 0; i < n; i++) {
		const struct lookup *l = &all[i];
		slow += is_slow(l);
		if (is_slow(l) && slow == 1)
			describe_delay(l, delay, sizeof delay);
		if (!is_slow(l) && l->error && bad < SHOWN_MAX)
			doctor_found_bad(f, FINDING_WARN, "node names", unresolved_remedy, "%s: %s",
					 l->name, gai_strerror(l->error));
		bad += is_slow(l) || l->error || report_loopback(l, nodes, f);
	}
	if (slow)
		doctor_found_bad(f, FINDING_WARN, "node names", slow_remedy,
				 "%d of %d name%s slow: %s", slow, n, n == 1 ? " is" : "s are",
				 delay);
	if (bad)
		return;
	if (n)
		doctor_found_ok(f, "node names", "%d of %d look-ups answered in less than %g s", n,
				n, SLOW_S);
	else
		doctor_found_ok(f, "node names", "Slurm has an address of each of %d node%s", nodes,
				human_s(nodes));
}

void doctor_check_names(const struct needs *n, struct findings *f)
{
	static struct lookup all[NAMES_MAX]; /* the look-ups may outlive the check */
	const char *list = getenv("SLURM_JOB_NODELIST");
	struct buf out = BUF_INIT;
	struct err e = ERR_INIT;
	int nodes;
	if (!n->slurm || !list) {
		doctor_found_ok(f, "node names", "this is not an allocation");
		return;
	}
	const char *const words[] = { "scontrol", "--oneliner", "show", "node", list, NULL };
	const struct child_command c = { .argv = (char *const *)(uintptr_t)words,
					 .out = -1,
					 .tied = true };
	if (launcher_child_run(&c, SCONTROL_S, &out, &e)) {
		doctor_found_bad(f, FINDING_WARN, "node names", "look at the lines about Slurm",
				 "%s", e.text);
	} else {
		int count = read_names(buf_str(&out), all, &nodes);
		look_up(all, count);
		judge_names(all, count, nodes, f);
	}
	buf_fini(&out);
}
