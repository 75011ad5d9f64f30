/*
 * stranger — what a process that does not belong to a run may try on it, for the bats files.
 *
 *     stranger [--uid N] pmix
 *         joins the PMIx server that the environment names, and prints what each rank published,
 *         one line per rank. Exit status 3: the server rejected it.
 *     stranger [--uid N] hold ADDRESS COUNT
 *         keeps COUNT connections open that send nothing, and reopens those that are closed. Prints
 *         "holding" once each has been opened, and ends when its standard input does.
 *
 * With --uid it first becomes that user (root only). It then deceives libpmix, which sends the uid
 * along: it claims that it is still root.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pmix.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NOT_LET_IN = 3, HELD_MAX = 4096, LOOK_MS = 20 };

/* libpmix finds these functions before libc's. */
uid_t geteuid(void)
{
	return 0;
}

gid_t getegid(void)
{
	return 0;
}

static int usage(void)
{
	fputs("usage: stranger [--uid N] pmix | hold ADDRESS COUNT\n", stderr);
	return 2;
}

static void print_rank(const pmix_proc_t *rank)
{
	pmix_value_t *v = NULL;
	if (PMIx_Get(rank, "muster.0", NULL, 0, &v) == PMIX_SUCCESS && v->type == PMIX_STRING)
		printf("%u %s\n", rank->rank, v->data.string);
	if (v)
		PMIX_VALUE_RELEASE(v);
}

static int join_pmix(void)
{
	pmix_proc_t me, peer;
	pmix_value_t *v = NULL;
	if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
		return NOT_LET_IN;
	PMIX_LOAD_PROCID(&peer, me.nspace, PMIX_RANK_WILDCARD);
	if (PMIx_Get(&peer, PMIX_JOB_SIZE, NULL, 0, &v) != PMIX_SUCCESS)
		return NOT_LET_IN;
	uint32_t size = v->data.uint32;
	PMIX_VALUE_RELEASE(v);
	for (peer.rank = 0; peer.rank < size; peer.rank++)
		print_rank(&peer);
	fflush(stdout);
	_exit(0); /* no farewell: the server would report it to the run */
}

static int connect_to(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)to, sizeof *to) &&
	    errno != EINPROGRESS) {
		close(fd);
		return -1;
	}
	return fd;
}

static int parse_address(char *text, struct sockaddr_in *to)
{
	char *port = strrchr(text, ':');
	if (!port)
		return -1;
	*port++ = '\0';
	*to = (struct sockaddr_in){ .sin_family = AF_INET,
				    .sin_port = htons((uint16_t)atoi(port)) };
	return inet_pton(AF_INET, text, &to->sin_addr) == 1 ? 0 : -1;
}

static int hold(const struct sockaddr_in *to, int count)
{
	static struct pollfd held[HELD_MAX + 1];
	for (int i = 0; i < count; i++)
		held[i] = (struct pollfd){ .fd = connect_to(to), .events = POLLIN };
	held[count] = (struct pollfd){ .fd = 0, .events = POLLIN };
	puts("holding");
	fflush(stdout);
	for (;;) {
		poll(held, (nfds_t)count + 1, LOOK_MS);
		if (held[count].revents)
			return 0;
		for (int i = 0; i < count; i++) {
			if (held[i].fd >= 0 && !held[i].revents)
				continue;
			if (held[i].fd >= 0)
				close(held[i].fd);
			held[i].fd = connect_to(to);
		}
	}
}

static int become(const char *uid)
{
	unsigned id = (unsigned)strtoul(uid, NULL, 10);
	return setresgid(id, id, id) || setresuid(id, id, id);
}

int main(int argc, char **argv)
{
	struct rlimit files;
	struct sockaddr_in to;
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (argc > 2 && !strcmp(argv[1], "--uid")) {
		if (become(argv[2])) {
			perror("stranger: cannot become that user");
			return 1;
		}
		argc -= 2;
		argv += 2;
	}
	if (argc == 2 && !strcmp(argv[1], "pmix"))
		return join_pmix();
	int count = argc == 4 ? atoi(argv[3]) : 0;
	if (count < 1 || count > HELD_MAX || strcmp(argv[1], "hold") || parse_address(argv[2], &to))
		return usage();
	return hold(&to, count);
}
