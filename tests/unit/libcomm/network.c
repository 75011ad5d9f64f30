#include "tests/unit/libcomm/network.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Starts a process that only holds a namespace; returns 0 if namespaces are not permitted. */
static pid_t keep_namespace(void)
{
	int ready[2];
	char word = 'n';
	if (pipe(ready) < 0)
		return 0;
	pid_t pid = fork();
	if (pid == 0) {
		close(ready[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		word = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
		if (write(ready[1], &word, 1) == 1)
			close(ready[1]);
		while (word == 'y')
			pause();
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &word, 1) != 1)
		word = 'n';
	close(ready[0]);
	if (pid > 0 && word == 'y')
		return pid;
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return 0;
}

static int shell(const char *format, ...)
{
	char line[1000];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	return system(line) == 0 ? 0 : -1;
}

static int add_host(struct network *net, int k)
{
	int host = net->host[k] = keep_namespace(), bridge = net->bridge;
	if (!host)
		return -1;
	return shell(
		"exec 2>/dev/null; ip link add net0 netns %d type veth peer name port%d netns %d &&"
		"nsenter -t %d -n sh -ec 'ip link set port%d master bridge0 up' &&"
		"nsenter -t %d -n sh -ec 'ip link set lo up; ip link set net0 addrgenmode none;"
		" ip addr add 10.77.0.%d/24 dev net0; ip link set net0 up;"
		" ip addr add fd77::%d/64 dev net0 nodad; ip addr add fe80::%d/64 dev net0 nodad'",
		host, k, bridge, bridge, k, host, k + 1, k + 1, k + 1);
}

int network_open(struct network *net, int hosts, const char **why)
{
	*net = (struct network){ .bridge = keep_namespace() };
	*why = "no network namespaces (they need root)";
	if (!net->bridge)
		return -1;
	*why = "no bridge in a network namespace (needs ip and nsenter)";
	if (shell("nsenter -t %d -n sh -ec 'ip link add bridge0 type bridge; ip link set bridge0 "
		  "up' 2>/dev/null",
		  net->bridge) < 0)
		goto close_network;
	*why = "no veth pair with IPv4 and IPv6 between network namespaces";
	for (net->n = 0; net->n < hosts; net->n++)
		if (add_host(net, net->n) < 0) {
			net->n++;
			goto close_network;
		}
	return 0;

close_network:
	network_close(net);
	return -1;
}

static void end_process(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void network_close(struct network *net)
{
	for (int k = 0; k < net->n; k++)
		end_process(net->host[k]);
	end_process(net->bridge);
}

int network_enter(const struct network *net, int host)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/ns/net", (int)net->host[host]);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = fd < 0 ? -1 : setns(fd, CLONE_NEWNET);
	if (fd >= 0)
		close(fd);
	return rc;
}

int network_cut(const struct network *net, int host)
{
	return shell("nsenter -t %d -n ip link set port%d nomaster", net->bridge, host);
}
