# Proxy VMs for a test suite, made when they are needed and kept between runs.
#
#   include proxies.mk            in your Makefile, or: make -f proxies.mk proxies.txt
#
# proxies.txt has one proxy a line, as HOST:PORT. What make is interrupted in, the next make finishes: the VMs are
# the same by their names. If nobody runs `make clean`, their time to live runs out and `egressctl gc` deletes them.

PROXY_SUITE     ?= tests
PROXY_COUNT     ?= 2
PROXY_IMAGE     ?= debian-13
PROXY_USER_DATA ?= $(dir $(lastword $(MAKEFILE_LIST)))../cloud-init/squid.yaml
PROXY_PORT      ?= 3128
PROXY_TTL       ?= 8h

proxies.txt:
	egressctl create --zone auto --count $(PROXY_COUNT) --name $(PROXY_SUITE) --image $(PROXY_IMAGE) \
	  --user-data $(PROXY_USER_DATA) --label suite=$(PROXY_SUITE) --ttl $(PROXY_TTL) \
	  --wait=port:$(PROXY_PORT) -o columns=IP --no-headers > $@.new
	sed 's/.*:.*/[&]/; s/$$/:$(PROXY_PORT)/' $@.new > $@
	rm $@.new

.PHONY: clean-proxies
clean-proxies:
	names=$$(egressctl list --selector suite=$(PROXY_SUITE) -o name) && \
	  { [ -z "$$names" ] || egressctl delete $$names; }
	rm -f proxies.txt proxies.txt.new
