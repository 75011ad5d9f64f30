#include "base/net.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool net_host_is_loopback(const char *host, size_t len)
{
	static const char *const names[] = { "localhost", "[::1]" };
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strlen(names[i]) == len && !strncasecmp(names[i], host, len))
			return true;
	char text[INET_ADDRSTRLEN];
	struct in_addr address;
	snprintf(text, sizeof text, "%.*s", (int)len, host);
	return len < sizeof text && inet_pton(AF_INET, text, &address) == 1 &&
	       ntohl(address.s_addr) >> 24 == 127;
}
