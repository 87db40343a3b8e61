from setuptools import find_namespace_packages, find_packages, setup

SHIPPED = ("schedules", "search_spaces")  # top-level folders that an install carries inside akg_py

packages = find_packages(include=["akg_py", "akg_py.*"])
for folder in SHIPPED:
    packages += [f"akg_py.{folder}"]
    packages += [f"akg_py.{folder}.{sub}" for sub in find_namespace_packages(folder)]

setup(
    packages=packages,
    package_dir={f"akg_py.{folder}": folder for folder in SHIPPED},
    package_data={"": ["*.toml"], "akg_py": ["**/*.toml", "py.typed"]},
)
