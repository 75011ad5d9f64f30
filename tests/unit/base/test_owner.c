/* Tests which user owns the process at the other end of a connection inside this host. The kernel
 * reports it. */
#include "base/owner.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NOBODY = 65534 };

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static int listen_on(int family, bool mapped, union address *at)
{
	int off = 0, fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = family == AF_INET ? sizeof at->v4 : sizeof at->v6;
	memset(at, 0, sizeof *at);
	at->any.sa_family = (sa_family_t)family;
	if (family == AF_INET)
		at->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else if (mapped)
		memcpy(at->v6.sin6_addr.s6_addr, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16);
	else
		at->v6.sin6_addr = in6addr_loopback;
	if (fd < 0 || (mapped && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off)) ||
	    bind(fd, &at->any, len) || listen(fd, 8) || getsockname(fd, &at->any, &len)) {
		close(fd);
		return -1;
	}
	if (mapped) { /* the address that its callers use */
		struct sockaddr_in ipv4 = { .sin_family = AF_INET,
					    .sin_port = at->v6.sin6_port,
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		at->v4 = ipv4;
	}
	return fd;
}

static int connect_to(const union address *to)
{
	int fd = socket(to->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, &to->any,
				 to->any.sa_family == AF_INET ? sizeof to->v4 : sizeof to->v6),
			 0);
	return fd;
}

static enum owner owner_of_our_own(int family, bool mapped)
{
	union address at;
	int listener = listen_on(family, mapped, &at);
	if (listener < 0)
		skip(); /* this host has no IPv6 */
	int mine = connect_to(&at), fd = accept(listener, NULL, NULL);
	enum owner who = owner_of_peer(fd);
	close(fd);
	close(mine);
	close(listener);
	return who;
}

static void our_own_connection_is_ours(void **state)
{
	(void)state;
	int pair[2];
	if (!owner_known_for_tcp())
		skip();
	assert_int_equal(owner_of_our_own(AF_INET, false), OWNER_SELF);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(owner_of_peer(pair[0]), OWNER_SELF);
	close(pair[0]);
	close(pair[1]);
}

static void our_own_ipv6_connection_is_ours(void **state)
{
	(void)state;
	if (!owner_known_for_tcp())
		skip();
	assert_int_equal(owner_of_our_own(AF_INET6, false), OWNER_SELF);
	assert_int_equal(owner_of_our_own(AF_INET6, true), OWNER_SELF);
}

static void another_users_is_not(void **state)
{
	(void)state;
	union address at;
	if (geteuid() != 0 || !owner_known_for_tcp())
		skip(); /* only root can become another user */
	int listener = listen_on(AF_INET, false, &at), held[2], status;
	char byte;
	assert_int_equal(pipe(held), 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(held[1]);
		if (setresuid(NOBODY, NOBODY, NOBODY))
			_exit(1);
		connect_to(&at);
		_exit(read(held[0], &byte, 1) == 0 ? 0 : 1);
	}
	int fd = accept(listener, NULL, NULL);
	assert_int_equal(owner_of_peer(fd), OWNER_OTHER);
	close(held[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(held[0]);
	close(fd);
	close(listener);
}

/* The closed end has no owner any more. The kernel would report root. */
static void one_that_has_closed_its_end_is_nobodys(void **state)
{
	(void)state;
	union address at;
	if (!owner_known_for_tcp())
		skip();
	int listener = listen_on(AF_INET, false, &at);
	close(connect_to(&at));
	int fd = accept(listener, NULL, NULL);
	assert_int_equal(owner_of_peer(fd), OWNER_OTHER);
	close(fd);
	close(listener);
}

static void a_descriptor_without_a_connection_has_an_unknown_owner(void **state)
{
	(void)state;
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(owner_of_peer(ends[0]), OWNER_UNKNOWN);
	assert_int_equal(owner_of_peer(-1), OWNER_UNKNOWN);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(our_own_connection_is_ours),
		cmocka_unit_test(our_own_ipv6_connection_is_ours),
		cmocka_unit_test(another_users_is_not),
		cmocka_unit_test(one_that_has_closed_its_end_is_nobodys),
		cmocka_unit_test(a_descriptor_without_a_connection_has_an_unknown_owner),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
